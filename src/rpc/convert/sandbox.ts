import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ResourceUsageSchema,
  type SandboxEventSchema,
  SandboxEventType,
  SandboxSchema,
  type TerminationSchema,
  TerminationCause as WireCause,
  IsolationLevel as WireIsolation,
  type Mount as WireMount,
  NetworkMode as WireNetworkMode,
  type Sandbox as WireSandbox,
  type SandboxSpec as WireSpec,
  SandboxState as WireState,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { invalidArgument } from "../../base/errors.ts";
import { parseDomainRule } from "../../egress/domains.ts";
import type { IsolationLevel, NetworkMode } from "../../engine/port.ts";
import type {
  Mount,
  ResourceUsage,
  SandboxEvent,
  SandboxState,
  SandboxView,
  StoredSpec,
  Termination,
  TerminationCause,
} from "../../sandboxes/sandbox.ts";
import type { RequestedSpec } from "../../sandboxes/spec.ts";
import {
  absolutePath,
  callerId,
  checkText,
  durationToMs,
  environment,
  integer,
  labels,
  msToDuration,
  msToTimestamp,
  positive,
  secretReferences,
} from "../validate/fields.ts";

const MAX_MOUNTS = 32;
const MAX_EGRESS_DOMAINS = 64;

const STATES: Record<SandboxState, WireState> = {
  CREATING: WireState.CREATING,
  RUNNING: WireState.RUNNING,
  PAUSED: WireState.PAUSED,
  DELETING: WireState.DELETING,
  TERMINATED: WireState.TERMINATED,
};

const CAUSES: Record<TerminationCause, WireCause> = {
  DELETED: WireCause.DELETED,
  IDLE_TIMEOUT: WireCause.IDLE_TIMEOUT,
  MAX_LIFETIME: WireCause.MAX_LIFETIME,
  OUT_OF_MEMORY: WireCause.OUT_OF_MEMORY,
  EXITED: WireCause.EXITED,
  REMOVED_EXTERNALLY: WireCause.REMOVED_EXTERNALLY,
  ENGINE_LOST: WireCause.ENGINE_LOST,
  CREATE_FAILED: WireCause.CREATE_FAILED,
  SERVER_SHUTDOWN: WireCause.SERVER_SHUTDOWN,
  UNCONTROLLABLE: WireCause.UNCONTROLLABLE,
};

const ISOLATION: Record<IsolationLevel, WireIsolation> = {
  NAMESPACE: WireIsolation.NAMESPACE,
  CONTAINER: WireIsolation.CONTAINER,
  USER_KERNEL: WireIsolation.USER_KERNEL,
  VIRTUAL_MACHINE: WireIsolation.VIRTUAL_MACHINE,
};

const NETWORKS: Record<NetworkMode, WireNetworkMode> = {
  NONE: WireNetworkMode.NONE,
  EGRESS: WireNetworkMode.EGRESS,
};

const EVENT_TYPES: Record<SandboxEvent["body"]["type"], SandboxEventType> = {
  CREATING: SandboxEventType.CREATING,
  IMAGE_PULL: SandboxEventType.IMAGE_PULL,
  RUNNING: SandboxEventType.RUNNING,
  PAUSED: SandboxEventType.PAUSED,
  RESUMED: SandboxEventType.RESUMED,
  UPDATED: SandboxEventType.UPDATED,
  DELETING: SandboxEventType.DELETING,
  TERMINATED: SandboxEventType.TERMINATED,
  WORKSPACE_OVER_QUOTA: SandboxEventType.WORKSPACE_OVER_QUOTA,
  WORKSPACE_WITHIN_QUOTA: SandboxEventType.WORKSPACE_WITHIN_QUOTA,
  SHARED_OVER_QUOTA: SandboxEventType.SHARED_OVER_QUOTA,
  SHARED_WITHIN_QUOTA: SandboxEventType.SHARED_WITHIN_QUOTA,
};

/** Validates a spec and converts it to the core's type. */
export function fromWireSpec(spec: WireSpec | undefined): RequestedSpec {
  if (spec === undefined) return {};
  const { resources } = spec;
  return {
    image: checkText("spec.image", spec.image, 512) || undefined,
    env: environment("spec.env", spec.env),
    secretEnv: secretReferences("spec.secret_env", spec.secretEnv),
    workingDir: spec.workingDir === "" ? undefined : absolutePath("spec.working_dir", spec.workingDir),
    user: checkText("spec.user", spec.user, 256) || undefined,
    memoryBytes: unsetIfZero(
      resources && integer("spec.resources.memory_bytes", resources.memoryBytes, { min: 0 }),
    ),
    cpuMillis: unsetIfZero(resources?.cpuMillis),
    pidsLimit: unsetIfZero(resources?.pidsLimit),
    diskBytes: unsetIfZero(
      resources && integer("spec.resources.disk_bytes", resources.diskBytes, { min: 0 }),
    ),
    network: fromWireNetwork(spec.network?.mode),
    egressDomains: fromWireDomains(spec.egressDomains),
    mounts: fromWireMounts(spec.mounts),
    labels: labels("spec.labels", spec.labels),
    idleTimeoutMs: positive("spec.idle_timeout", durationToMs("spec.idle_timeout", spec.idleTimeout)),
    maxLifetimeMs: positive("spec.max_lifetime", durationToMs("spec.max_lifetime", spec.maxLifetime)),
    commandTimeoutMs: positive(
      "spec.command_timeout",
      durationToMs("spec.command_timeout", spec.commandTimeout),
    ),
    runtime: checkText("spec.runtime", spec.runtime, 128) || undefined,
  };
}

export function toWireSandbox(view: SandboxView): WireSandbox {
  return create(SandboxSchema, {
    sandboxId: view.sandboxId,
    spec: toWireSpec(view.spec),
    state: STATES[view.state],
    generation: BigInt(view.generation),
    engine: view.engine,
    isolation: ISOLATION[view.isolation],
    networkOpen: view.networkOpen,
    owner: view.owner,
    createTime: msToTimestamp(view.createTimeMs),
    lastUsedTime: msToTimestamp(view.lastUsedTimeMs),
    expireTime: view.expireTimeMs === undefined ? undefined : msToTimestamp(view.expireTimeMs),
    activeOperations: view.activeOperations,
    termination: view.termination && toWireTermination(view.termination),
  });
}

export function toWireUsage(usage: ResourceUsage): MessageInitShape<typeof ResourceUsageSchema> {
  const { memoryLimitBytes, cpuLimitMillis, processLimit } = usage;
  return {
    memoryBytes: BigInt(usage.memoryBytes),
    cpuTime: msToDuration(usage.cpuNanos / 1e6),
    processes: usage.processes,
    measureTime: msToTimestamp(usage.measureTimeMs),
    ...(memoryLimitBytes !== undefined && { memoryLimitBytes: BigInt(memoryLimitBytes) }),
    ...(cpuLimitMillis !== undefined && { cpuLimitMillis }),
    ...(processLimit !== undefined && { processLimit }),
  };
}

export function toWireIsolation(level: IsolationLevel): WireIsolation {
  return ISOLATION[level];
}

export function toWireEvent(event: SandboxEvent): MessageInitShape<typeof SandboxEventSchema> {
  const { body } = event;
  return {
    sequence: BigInt(event.sequence),
    time: msToTimestamp(event.timeMs),
    sandboxId: event.sandboxId,
    generation: BigInt(event.generation),
    type: EVENT_TYPES[body.type],
    termination: "termination" in body ? toWireTermination(body.termination) : undefined,
    imagePull:
      body.type === "IMAGE_PULL"
        ? {
            image: body.image,
            currentBytes: BigInt(body.progress.currentBytes),
            totalBytes: BigInt(body.progress.totalBytes),
            layersDone: body.progress.layersDone,
            layersTotal: body.progress.layersTotal,
          }
        : undefined,
    workspaceUsage:
      "workspaceId" in body
        ? {
            workspaceId: body.workspaceId,
            sizeBytes: BigInt(body.sizeBytes),
            quotaBytes: BigInt(body.quotaBytes),
          }
        : undefined,
  };
}

/** The states to list: the requested ones, or all live ones, plus ended ones if requested. */
export function fromWireStates(states: readonly WireState[], showTerminated: boolean): Set<SandboxState> {
  const names = Object.keys(STATES) as SandboxState[];
  const wanted = new Set<SandboxState>();
  for (const state of states) {
    const name = names.find((candidate) => STATES[candidate] === state);
    if (name === undefined) throw invalidArgument("states", `${state} is not a state of a sandbox.`);
    wanted.add(name);
  }
  if (states.length === 0) for (const name of names) if (name !== "TERMINATED") wanted.add(name);
  if (showTerminated) wanted.add("TERMINATED");
  return wanted;
}

function toWireTermination(termination: Termination): MessageInitShape<typeof TerminationSchema> {
  const { cause, message, timeMs } = termination;
  return { cause: CAUSES[cause], message, time: msToTimestamp(timeMs) };
}

/** The spec may come from an answer that an older version stored. */
function toWireSpec(spec: StoredSpec): MessageInitShape<typeof SandboxSchema>["spec"] {
  return {
    image: spec.image,
    env: { ...spec.env },
    secretEnv: { ...spec.secretEnv },
    workingDir: spec.workingDir,
    user: spec.user,
    resources: {
      memoryBytes: BigInt(spec.resources.memoryBytes),
      cpuMillis: spec.resources.cpuMillis,
      pidsLimit: spec.resources.pidsLimit,
      diskBytes: BigInt(spec.resources.diskBytes ?? 0),
    },
    network: { mode: NETWORKS[spec.network] },
    egressDomains: [...(spec.egressDomains ?? [])],
    mounts: spec.mounts.map(({ source, target, readOnly }) => ({
      source:
        source.kind === "host"
          ? { case: "hostPath" as const, value: source.path }
          : { case: "workspaceId" as const, value: source.workspaceId },
      target,
      readOnly,
    })),
    labels: { ...spec.labels },
    idleTimeout: msToDuration(spec.idleTimeoutMs),
    maxLifetime: spec.maxLifetimeMs === undefined ? undefined : msToDuration(spec.maxLifetimeMs),
    commandTimeout: msToDuration(spec.commandTimeoutMs),
    runtime: spec.runtime,
  };
}

function fromWireNetwork(mode: WireNetworkMode | undefined): NetworkMode | undefined {
  switch (mode) {
    case undefined:
    case WireNetworkMode.UNSPECIFIED:
      return undefined;
    case WireNetworkMode.NONE:
      return "NONE";
    case WireNetworkMode.EGRESS:
      return "EGRESS";
    default:
      throw invalidArgument("spec.network.mode", `${mode} is not a network mode.`);
  }
}

function fromWireDomains(domains: readonly string[]): string[] {
  if (domains.length > MAX_EGRESS_DOMAINS) {
    throw invalidArgument(
      "spec.egress_domains",
      `there are ${domains.length}; at most ${MAX_EGRESS_DOMAINS} are allowed.`,
    );
  }
  for (const [index, domain] of domains.entries()) {
    const rule = parseDomainRule(domain);
    if (typeof rule === "string") throw invalidArgument(`spec.egress_domains[${index}]`, `${rule}.`);
  }
  return [...domains];
}

function fromWireMounts(mounts: readonly WireMount[]): Mount[] {
  if (mounts.length > MAX_MOUNTS)
    throw invalidArgument("spec.mounts", `there are ${mounts.length}; at most ${MAX_MOUNTS} are allowed.`);
  const targets = new Set<string>();
  return mounts.map((mount, index) => {
    const field = `spec.mounts[${index}]`;
    const target = absolutePath(`${field}.target`, mount.target);
    if (target === "/") throw invalidArgument(`${field}.target`, "the root itself cannot be a mount.");
    if (targets.has(target))
      throw invalidArgument(
        `${field}.target`,
        `${JSON.stringify(target)} is the target of another mount too.`,
      );
    targets.add(target);
    return { source: fromWireSource(field, mount.source), target, readOnly: mount.readOnly };
  });
}

function fromWireSource(field: string, source: WireMount["source"]): Mount["source"] {
  switch (source.case) {
    case "workspaceId":
      return { kind: "workspace", workspaceId: callerId(`${field}.workspace_id`, source.value) };
    case "hostPath":
      return { kind: "host", path: absolutePath(`${field}.host_path`, source.value) };
    default:
      throw invalidArgument(field, "give workspace_id or host_path.");
  }
}

function unsetIfZero(value: number | undefined): number | undefined {
  return value === 0 ? undefined : value;
}
