import { BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import { MemoryBudget } from "../base/memory-budget.ts";
import type { Slice, Sliced } from "../base/ordered-index.ts";
import type { TerminalSize } from "../engine/port.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import type { RequestLog, RequestProgress } from "../state/request-log.ts";
import { HeadAndTail } from "./head-and-tail.ts";
import type { ProcessJournal } from "./journal.ts";
import { Process, type ProcessParts } from "./process.ts";
import type { Command, ExitStatus, StartOptions } from "./record.ts";
import { ProcessRegistry } from "./registry.ts";
import { orSandboxEnd } from "./shell/errors.ts";
import { type JobRequest, resolveWorkingDir, withoutVariables } from "./shell/job.ts";
import type { Offsets, TranscriptItem, TranscriptReader } from "./transcript-reader.ts";

/** A request to run a command. Unset fields default to the sandbox's values. */
export interface CommandRequest extends Omit<StartOptions, "timeoutMs"> {
  readonly sandbox: SandboxName;
  readonly env: Readonly<Record<string, string>>;
  /** As {@link JobRequest.secretEnv}. Overrides the sandbox's. */
  readonly secretEnv?: Readonly<Record<string, string>>;
  readonly redactSecrets?: boolean;
  readonly workingDir: string | undefined;
  readonly user: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly terminal: TerminalSize | undefined;
  /** Empty: not idempotent. */
  readonly requestId: string;
  /** Equal if and only if the parameters of the requests are equal. */
  readonly fingerprint: string;
}

/** A command of the service's own: the sandbox's values, no stdin, nobody who attaches to it. */
export const OWN_COMMAND = {
  env: {},
  workingDir: undefined,
  user: undefined,
  terminal: undefined,
  stdin: new Uint8Array(),
  keepStdinOpen: false,
  onDisconnect: "KILL",
  disconnectGraceMs: 0,
  outputLimitBytes: undefined,
  runId: "",
  requestId: "",
  fingerprint: "",
} as const satisfies Partial<CommandRequest>;

/** An event in the stream of a process. */
export type ProcessEvent =
  | {
      readonly type: "started";
      readonly processId: string;
      readonly startTimeMs: number;
      /** How many runs of the service found it without an end when they started. */
      readonly recoveries: number;
      /** Where the stream starts. */
      readonly from: Offsets;
    }
  | TranscriptItem
  | { readonly type: "exited"; readonly status: ExitStatus }
  | { readonly type: "keepalive" };

/** The collected result of a process. */
interface CollectedOutput {
  readonly processId: string;
  readonly status: ExitStatus;
  readonly stdout: HeadAndTail;
  readonly stderr: HeadAndTail;
}

interface ProcessManagerSettings {
  /** Limit of running processes in one sandbox. */
  readonly maxProcessesPerSandbox: number;
  /** A stream without events sends a keepalive at this interval. */
  readonly keepaliveMs: number;
}

/** What processes need to know about runs. */
export interface RunStates {
  /** Whether this run of the owner is RUNNING. */
  has(owner: string, runId: string): boolean;
  /** @throws `RUN_STATE` unless this run of the owner is RUNNING. */
  assertRunning(owner: string, runId: string): void;
}

/** Starts processes, streams their output, and keeps how they ended. */
export class ProcessManager {
  readonly #settings: ProcessManagerSettings;
  readonly #sandboxes: SandboxManager;
  readonly #requests: RequestLog;
  readonly #runs: RunStates;
  readonly #parts: ProcessParts;
  readonly #journal: ProcessJournal;
  readonly #memory: MemoryBudget;
  readonly #registry: ProcessRegistry;

  constructor(
    settings: ProcessManagerSettings,
    sandboxes: SandboxManager,
    requests: RequestLog,
    runs: RunStates,
    parts: ProcessParts & {
      readonly journal: ProcessJournal;
      readonly quotas?: TenantQuotas;
      /** Limits the output that {@link run} collects. Default: nothing does. */
      readonly memory?: MemoryBudget;
    },
  ) {
    this.#settings = settings;
    this.#sandboxes = sandboxes;
    this.#requests = requests;
    this.#runs = runs;
    this.#parts = parts;
    this.#journal = parts.journal;
    this.#memory = parts.memory ?? new MemoryBudget(Number.POSITIVE_INFINITY);
    this.#registry = new ProcessRegistry(parts.clock, parts.quotas ?? new TenantQuotas(parts.clock), {
      read: (processId) => parts.journal.read(processId, parts),
      forget: (process) => parts.journal.forget(process),
    });
    parts.journal.isReadable = (processId) => this.#registry.has(processId);
    parts.journal.onWhole = (process) => this.#release(process);
  }

  /** Recovers the processes of earlier runs of the service: ended ones, and those that still run in live sandboxes. */
  async recover(): Promise<void> {
    const { ended, processes, followed } = await this.#journal.recover(this.#sandboxes, this.#parts);
    for (const process of ended) {
      const { sandbox, transcript } = process;
      if (transcript !== undefined) this.#parts.transcripts.watch(sandbox.owner, transcript);
      this.#registry.addEnded(process);
    }
    for (const process of processes) this.#registry.add(process);
    // Also those that have ended by now, as their pipes said.
    this.#journal.recovered(followed);
  }

  /**
   * Starts a process and streams it: `started`, output, `exited`. The process waits if this stream is read slowly. When
   * the caller leaves, which aborts the signal, the process is stopped or detached, depending on the request.
   * @throws the errors of {@link SandboxManager.acquire} and of the engine; `INVALID_ARGUMENT`, `TOO_MANY_OPERATIONS`,
   * `TENANT_QUOTA`, `RUN_STATE`.
   */
  async *exec(request: CommandRequest, signal: AbortSignal): AsyncGenerator<ProcessEvent> {
    const { process, isNew } = await this.#startOnce("Exec", request, signal);
    const reader = process.transcript.reader({ stdout: 0, stderr: 0 });
    const leave = isNew ? process.keep(reader) : process.join();
    yield* this.#stream(process, reader, leave, signal);
  }

  /**
   * Runs a process to its end and returns the head and tail of its output, shorter ones if there is no memory for more.
   * When the caller leaves, which aborts the signal, the process is stopped or continues, depending on the request.
   * @param signal is aborted when the call is over, and holds the output's memory until then.
   */
  async run(request: CommandRequest, maxOutputBytes: number, signal: AbortSignal): Promise<CollectedOutput> {
    const { process, isNew } = await this.#startOnce("RunCommand", request, signal);
    const { take } = this.#memory.open(request.sandbox.owner, signal);
    const collected = {
      stdout: new HeadAndTail(maxOutputBytes, take),
      stderr: new HeadAndTail(maxOutputBytes, take),
    };
    const reader = process.transcript.reader({ stdout: 0, stderr: 0 });
    const leave = isNew ? process.keep(reader) : process.join();
    for await (const event of this.#stream(process, reader, leave, signal)) {
      if (event.type === "output") collected[event.stream].append(event.data);
      else if (event.type === "gap") collected[event.stream].skip(event.to - event.from);
    }
    throwIfAborted(signal);
    return { processId: process.id, status: await process.ended, ...collected };
  }

  /**
   * Streams the transcript of a process from the given offsets, then follows it. The process never waits for this
   * stream.
   * @param from `recoveries`: how many runs of the service had found the process when the caller got these offsets.
   *   Undefined: they count as they are.
   */
  async *attach(
    owner: string,
    processId: string,
    { recoveries, ...from }: Offsets & { readonly recoveries?: number | undefined },
    signal: AbortSignal,
  ): AsyncGenerator<ProcessEvent> {
    const process = this.get(owner, processId);
    const reader = process.transcript.reader(
      recoveries === undefined ? from : process.continueFrom(from, recoveries),
    );
    yield* this.#stream(process, reader, process.follow(), signal);
  }

  /** Returns a process. @throws `PROCESS_NOT_FOUND`. */
  get(owner: string, processId: string): Process {
    const process = this.#registry.get(owner, processId);
    if (process !== undefined) return process;
    throw new BerthError(
      "PROCESS_NOT_FOUND",
      `There is no process ${JSON.stringify(processId)}, or it ended more than 24 hours ago.`,
      { metadata: { process_id: processId } },
    );
  }

  /** Lists processes of a sandbox, newest first. @throws `SANDBOX_NOT_FOUND`. */
  async list(sandbox: SandboxName, showEnded: boolean, slice: Slice): Promise<Sliced<Process>> {
    this.#sandboxes.get(sandbox);
    return this.#registry.list(sandbox.owner, sandbox.sandboxId, showEnded, slice);
  }

  async endRun(owner: string, runId: string): Promise<void> {
    const tied = this.#registry
      .allRunning()
      .filter(
        ({ options, sandbox, status }) => options.runId === runId && sandbox.owner === owner && !status,
      );
    await Promise.all(
      tied.map(async (process) => {
        if (process.lease !== undefined) await this.#resume(process.lease);
        process.stop("CANCELED");
        await process.ended;
      }),
    );
  }

  /** Detaches from every running process without ending it: the next run of the service recovers it. */
  async detach(): Promise<void> {
    await this.#journal.stop();
    for (const process of this.#registry.allRunning()) process.detach();
  }

  async #startOnce(
    method: string,
    request: CommandRequest,
    signal: AbortSignal,
  ): Promise<{ process: Process; isNew: boolean }> {
    const { requestId, fingerprint, hold } = request;
    const { owner } = request.sandbox;
    const key = { owner, method, requestId, fingerprint, hold };
    let own: Process | undefined;
    const start = async (shared: AbortSignal, progress: RequestProgress): Promise<string> => {
      const { subject } = progress;
      if (subject !== undefined && this.#registry.get(owner, subject) !== undefined) return subject;
      own = await this.#start(request, shared, progress);
      // Who joins ends the grace.
      if (shared.aborted || request.disconnectGraceMs > 0) own.abandon();
      return own.id;
    };
    // With a grace, a caller that is lost while the command starts may come back for it.
    const endsWithCallers = request.onDisconnect === "KILL" && request.disconnectGraceMs === 0;
    const id = await this.#requests.run(key, signal, start, endsWithCallers ? { needs: "reader" } : {});
    return own === undefined ? { process: this.get(owner, id), isNew: false } : { process: own, isNew: true };
  }

  async #start(request: CommandRequest, signal: AbortSignal, progress: RequestProgress): Promise<Process> {
    const { runId } = request;
    if (runId !== "") this.#runs.assertRunning(request.sandbox.owner, runId);
    const lease = this.#sandboxes.acquire(request.sandbox);
    let place: Reservation | undefined;
    try {
      const { sandbox } = lease;
      const { maxProcessesPerSandbox } = this.#settings;
      place = this.#registry.reserve(sandbox.owner, sandbox.sandboxId, maxProcessesPerSandbox);
      const job: JobRequest = {
        argv: argvOf(request.command),
        env: { ...sandbox.spec.env, ...(request.terminal && { TERM: "xterm-256color" }), ...request.env },
        secretEnv: { ...withoutVariables(sandbox.spec.secretEnv, request.env), ...request.secretEnv },
        redactSecrets: request.redactSecrets ?? false,
        workingDir: resolveWorkingDir(sandbox.spec.workingDir, request.workingDir),
        user: request.user ?? sandbox.user,
        stdin: request.stdin.length > 0 || request.keepStdinOpen || request.terminal !== undefined,
        terminal: request.terminal,
        ...(request.isDialogue && { isDialogue: true }),
      };
      const options: StartOptions = {
        command: request.command,
        timeoutMs: request.timeoutMs ?? sandbox.spec.commandTimeoutMs,
        stdin: request.stdin,
        hold: request.hold,
        ...(request.aheadBytes && { aheadBytes: request.aheadBytes }),
        keepStdinOpen: request.keepStdinOpen,
        onDisconnect: request.onDisconnect,
        disconnectGraceMs: request.disconnectGraceMs,
        outputLimitBytes: request.outputLimitBytes,
        runId,
      };
      const id = newId("prc");
      const keep = (starting: Process): void => {
        // Wait for the disk only if the caller can repeat the request.
        if (request.requestId !== "") this.#journal.begin(starting, () => progress.begin(id));
        failpoint("exec.intended");
      };
      const process = await Process.start(id, lease, job, options, this.#parts, signal, keep).catch(
        (error: unknown) => {
          if (request.requestId !== "") this.#journal.forget({ id });
          throw error;
        },
      );
      failpoint("exec.started");
      this.#registry.add(process, place);
      this.#journal.follow(process);
      // The run may have ended meanwhile and missed this process.
      if (runId !== "" && !this.#runs.has(sandbox.owner, runId)) process.stop("CANCELED");
      return process;
    } catch (error) {
      place?.release();
      const either = AbortSignal.any([signal, lease.signal]);
      const reason = await orSandboxEnd(error, lease.sandbox, either, this.#parts.control);
      lease.release();
      throw reason;
    }
  }

  async *#stream(
    process: Process,
    reader: TranscriptReader,
    leave: () => void,
    signal: AbortSignal,
  ): AsyncGenerator<ProcessEvent> {
    const { transcript } = process;
    // While the generator waits in `yield`, only the signal reports that the caller has left.
    signal.addEventListener("abort", leave, { once: true });
    try {
      if (signal.aborted) return;
      const { id: processId, startTimeMs, recoveredAt } = process;
      yield {
        type: "started",
        processId,
        startTimeMs,
        recoveries: recoveredAt.length,
        from: { ...reader.offsets },
      };
      while (!signal.aborted) {
        const next = reader.next();
        // Do not await anything between finding nothing and waiting for more: output in between would be noticed late.
        const item = next instanceof Promise ? await next : next;
        if (item !== undefined) yield item;
        else if (transcript.ended) break;
        else if (!(await transcript.changed(this.#settings.keepaliveMs, signal))) yield { type: "keepalive" };
      }
      if (signal.aborted) return;
      const status = await process.ended;
      failpoint("exec.ended");
      await this.#journal.kept(process);
      yield { type: "exited", status };
    } finally {
      signal.removeEventListener("abort", leave);
      leave();
    }
  }

  /** Drops everything about an ended process that can be read again from the database. */
  #release(process: Process): void {
    const unread = this.#registry.release(process);
    if (unread !== undefined)
      this.#parts.transcripts.replace(process.sandbox.owner, process.transcript, unread);
  }

  /** Resumes the sandbox if it is paused, because a frozen process does not end. */
  async #resume({ sandbox, signal }: Lease): Promise<void> {
    try {
      if (this.#sandboxes.get(sandbox).state === "PAUSED") await this.#sandboxes.resume(sandbox, signal);
    } catch {
      // The sandbox is ending, and its processes with it, or the engine is unavailable. Callers have timeouts.
    }
  }
}

function argvOf(command: Command): readonly string[] {
  return command.kind === "argv" ? command.args : ["/bin/sh", "-c", command.line];
}
