/** Between the messages of the API and what users see. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Duration,
  DurationSchema,
  durationMs,
  type Timestamp,
  timestampDate,
} from "@bufbuild/protobuf/wkt";
import { nameOf } from "./enum-name.ts";
import type {
  Command,
  Content,
  ExitStatus,
  Gap,
  Mount,
  Path,
  ProcessInfo,
  ResourceUsage,
  SandboxEvent,
  SandboxInfo,
  SandboxSpec,
  Stats,
  Termination,
  WorkspaceInfo,
} from "./types.ts";
import {
  type ExecRequestSchema,
  ExitCause,
  type ExitStatus as ExitStatusMessage,
  type Gap as GapMessage,
  OutputStream,
  type Process,
} from "./v1/process_pb.js";
import {
  type GetStatsResponse,
  IsolationLevel,
  NetworkMode,
  type ResourceUsage as ResourceUsageMessage,
  type Sandbox,
  type SandboxEvent as SandboxEventMessage,
  SandboxEventType,
  type SandboxSpec as SandboxSpecMessage,
  type SandboxSpecSchema,
  SandboxState,
  TerminationCause,
  type Termination as TerminationMessage,
  type WatchEventsResponse,
} from "./v1/sandbox_pb.js";
import type { Workspace } from "./v1/workspace_pb.js";

const encoder = new TextEncoder();

/** Decodes UTF-8, and keeps a byte order mark, which is a part of the text. */
export function textDecoder() {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}

/** @throws TypeError for anything else, which callers in plain JavaScript may pass */
export function content(data: Content): Uint8Array {
  if (typeof data === "string") return encoder.encode(data);
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data)) {
    const { buffer, byteOffset, byteLength } = data as ArrayBufferView;
    return new Uint8Array(buffer, byteOffset, byteLength);
  }
  const kind = Object.prototype.toString.call(data).slice("[object ".length, -1);
  // Not by its class: that of a buffer that Node made is another one in a program's own contexts, as Jest's.
  if (kind === "ArrayBuffer") return new Uint8Array(data);
  throw new TypeError(`The data must be a string, a Uint8Array or an ArrayBuffer, not ${kind}.`);
}

/** @throws RangeError for NaN and infinity */
export function duration(ms: number | undefined): Duration | undefined {
  if (ms === undefined) return undefined;
  if (!Number.isFinite(ms))
    throw new RangeError(`${ms} is not a number of milliseconds; leave it out for the service's default`);
  // A computed number, such as 1.005 * 1000, has no whole number of nanoseconds.
  const nanos = Math.round(ms * 1e6);
  return create(DurationSchema, { seconds: BigInt(Math.trunc(nanos / 1e9)), nanos: nanos % 1e9 || 0 });
}

/** @throws TypeError for a fraction, and for anything else that callers in plain JavaScript may pass */
export function whole(name: string, value: number): bigint {
  if (!Number.isSafeInteger(value)) throw new TypeError(`${name} must be a whole number, not ${value}.`);
  return BigInt(value);
}

/** Variables without those that are undefined, as the environment of Node's own child processes. */
export function variables(env: Readonly<Record<string, string | undefined>> = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

export function ms(message: Duration | undefined): number {
  return message === undefined ? 0 : durationMs(message);
}

export function date(time: Timestamp | undefined): Date | undefined {
  return time === undefined ? undefined : timestampDate(time);
}

/** A message that the service's response must have. */
export function present<T>(message: T | undefined): T {
  if (message === undefined) throw new Error("The service's answer lacks what it must contain.");
  return message;
}

export function command(given: Command): MessageInitShape<typeof ExecRequestSchema>["command"] {
  if (typeof given === "string") return { case: "shell", value: given };
  if (Array.isArray(given)) return { case: "argv", value: { args: [...given] } };
  throw new TypeError("The command must be a string or an array of strings.");
}

export function pathField(path: Path): { path: string } | { rawPath: Uint8Array } {
  return typeof path === "string" ? { path } : { rawPath: path };
}

export function streamName(stream: OutputStream): "stdout" | "stderr" {
  return stream === OutputStream.STDERR ? "stderr" : "stdout";
}

export function gap(message: GapMessage | undefined): Gap | undefined {
  if (message === undefined) return undefined;
  return { fromOffset: Number(message.fromOffset), toOffset: Number(message.toOffset) };
}

/** A name that is misspelled must not turn the network off. */
function networkMode(name: NonNullable<SandboxSpec["network"]>): NetworkMode {
  if (name === "NONE" || name === "EGRESS") return NetworkMode[name];
  throw new TypeError(`network is "NONE" or "EGRESS", not "${name}".`);
}

export function specMessage(spec: SandboxSpec): MessageInitShape<typeof SandboxSpecSchema> {
  const { memoryBytes = 0, cpuMillis = 0, pidsLimit = 0, diskBytes = 0, network, mounts = [] } = spec;
  const { egressDomains = [] } = spec;
  const { idleTimeoutMs, maxLifetimeMs, commandTimeoutMs, env, secretEnv, labels, ...texts } = spec;
  const { image = "", workingDir = "", user = "", runtime = "" } = texts;
  return {
    image,
    workingDir,
    user,
    runtime,
    ...(env && { env: variables(env) }),
    secretEnv: { ...secretEnv },
    ...(labels && { labels: { ...labels } }),
    ...((memoryBytes || cpuMillis || pidsLimit || diskBytes) && {
      resources: {
        memoryBytes: whole("memoryBytes", memoryBytes),
        cpuMillis,
        pidsLimit,
        diskBytes: whole("diskBytes", diskBytes),
      },
    }),
    ...(network && { network: { mode: networkMode(network) } }),
    egressDomains: [...egressDomains],
    mounts: mounts.map(({ target, readOnly = false, ...source }) => ({
      target,
      readOnly,
      source:
        "workspaceId" in source
          ? { case: "workspaceId" as const, value: source.workspaceId }
          : { case: "hostPath" as const, value: source.hostPath },
    })),
    idleTimeout: duration(idleTimeoutMs),
    maxLifetime: duration(maxLifetimeMs),
    commandTimeout: duration(commandTimeoutMs),
  };
}

function spec(message: SandboxSpecMessage): SandboxSpec {
  const { image, env, secretEnv, workingDir, user, resources, network, labels, runtime } = message;
  return {
    image,
    env,
    secretEnv,
    workingDir,
    user,
    memoryBytes: Number(resources?.memoryBytes ?? 0),
    cpuMillis: resources?.cpuMillis ?? 0,
    pidsLimit: resources?.pidsLimit ?? 0,
    diskBytes: Number(resources?.diskBytes ?? 0),
    network: network?.mode === NetworkMode.EGRESS ? "EGRESS" : "NONE",
    egressDomains: message.egressDomains,
    mounts: message.mounts.map(
      ({ target, readOnly, source }): Mount =>
        source.case === "workspaceId"
          ? { target, readOnly, workspaceId: source.value }
          : { target, readOnly, hostPath: source.value ?? "" },
    ),
    labels,
    ...(message.idleTimeout && { idleTimeoutMs: durationMs(message.idleTimeout) }),
    ...(message.maxLifetime && { maxLifetimeMs: durationMs(message.maxLifetime) }),
    ...(message.commandTimeout && { commandTimeoutMs: durationMs(message.commandTimeout) }),
    runtime,
  };
}

export function sandboxInfo(message: Sandbox | undefined): SandboxInfo {
  const sandbox = present(message);
  return {
    sandboxId: sandbox.sandboxId,
    state: nameOf(SandboxState, sandbox.state),
    generation: Number(sandbox.generation),
    engine: sandbox.engine,
    isolation: nameOf(IsolationLevel, sandbox.isolation),
    owner: sandbox.owner,
    spec: sandbox.spec === undefined ? {} : spec(sandbox.spec),
    createTime: date(sandbox.createTime),
    lastUsedTime: date(sandbox.lastUsedTime),
    expireTime: date(sandbox.expireTime),
    activeOperations: sandbox.activeOperations,
    termination: termination(sandbox.termination),
  };
}

function termination(message: TerminationMessage | undefined): Termination | undefined {
  if (message === undefined) return undefined;
  const { cause, message: text, time } = message;
  return { cause: nameOf(TerminationCause, cause), message: text, time: date(time) };
}

export function resourceUsage(message: ResourceUsageMessage | undefined): ResourceUsage {
  const { memoryBytes, memoryLimitBytes, cpuTime, measureTime, ...rest } = present(message);
  const { cpuLimitMillis, processes, processLimit } = rest;
  return {
    memoryBytes: Number(memoryBytes),
    memoryLimitBytes: memoryLimitBytes === undefined ? undefined : Number(memoryLimitBytes),
    cpuTimeMs: ms(cpuTime),
    cpuLimitMillis,
    processes,
    processLimit,
    measureTime: timestampDate(present(measureTime)),
  };
}

export function stats(message: GetStatsResponse): Stats {
  const { totalSandboxes, activeOperations, maxSandboxes, isShuttingDown, engine } = message;
  return {
    totalSandboxes,
    activeOperations,
    maxSandboxes,
    idleTimeoutMs: ms(message.idleTimeout),
    cleanupIntervalMs: ms(message.cleanupInterval),
    isShuttingDown,
    sandboxes: message.sandboxes.map(({ sandboxId, lastUsed, isActive }) => ({
      sandboxId,
      lastUsed: date(lastUsed),
      isActive,
    })),
    engine: engine?.name ?? "",
  };
}

/** The event in a response; undefined for a keepalive, or an event of a newer service. */
export function sandboxEvent({ item }: WatchEventsResponse): SandboxEvent | undefined {
  if (item.case === "event") return event(item.value);
  if (item.case !== "trimmed") return undefined;
  return {
    sequence: Number(item.value.toSequence),
    type: "TRIMMED",
    time: undefined,
    sandboxId: "",
    termination: undefined,
    pulledBytes: 0,
    totalBytes: 0,
  };
}

function event({
  sequence,
  time,
  sandboxId,
  type,
  termination: end,
  imagePull,
}: SandboxEventMessage): SandboxEvent {
  return {
    sequence: Number(sequence),
    time: date(time),
    sandboxId,
    type: nameOf(SandboxEventType, type),
    termination: termination(end),
    pulledBytes: Number(imagePull?.currentBytes ?? 0),
    totalBytes: Number(imagePull?.totalBytes ?? 0),
  };
}

export function exitStatus(message: ExitStatusMessage): ExitStatus {
  const { cause, exitCode, signal, message: text } = message;
  return {
    cause: nameOf(ExitCause, cause),
    exitCode,
    signal,
    durationMs: ms(message.duration),
    stdoutBytes: Number(message.stdoutBytes),
    stderrBytes: Number(message.stderrBytes),
    message: text,
    ok: cause === ExitCause.EXITED && exitCode === 0,
  };
}

export function processInfo(message: Process | undefined): ProcessInfo {
  const process = present(message);
  return {
    processId: process.processId,
    sandboxId: process.sandboxId,
    command: process.command.case === "argv" ? process.command.value.args : (process.command.value ?? ""),
    startTime: date(process.startTime),
    status: process.exitStatus && exitStatus(process.exitStatus),
    stdoutBytes: Number(process.stdoutBytes),
    stderrBytes: Number(process.stderrBytes),
    hasTerminal: process.hasTerminal,
    runId: process.runId,
  };
}

export function workspaceInfo(message: Workspace | undefined): WorkspaceInfo {
  const workspace = present(message);
  const { workspaceId, path, traceRefs, refCount, sandboxId, sizeBytes, owner, overQuota, hasShared } =
    workspace;
  return {
    workspaceId,
    path,
    traceRefs,
    refCount,
    sandboxId,
    size: sizeBytes === undefined ? undefined : Number(sizeBytes),
    createTime: date(workspace.createTime),
    updateTime: date(workspace.updateTime),
    owner,
    quota: Number(workspace.quotaBytes),
    overQuota,
    hasShared,
  };
}
