import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { OutputStream, TerminalSize } from "../engine/port.ts";
import type { Lease, LeasedSandbox } from "../sandboxes/lease.ts";
import { UNCOUNTED } from "../state/request-log.ts";
import type { ProcessControl } from "./control.ts";
import { DisconnectPolicy } from "./disconnect-policy.ts";
import {
  type ExitCause,
  type ExitStatus,
  mayBeOutOfMemory,
  type ProcessOptions,
  type StartOptions,
  signalOf,
} from "./record.ts";
import { sandboxEnd } from "./shell/errors.ts";
import type { Job, JobEnd, JobRequest, JobRunner, JobTrace, LeaderId } from "./shell/job.ts";
import { ReattachedJob } from "./shell/reattached-job.ts";
import type { Spill } from "./spill.ts";
import { type StdinProgress, StdinWriter } from "./stdin-writer.ts";
import { READING_MS, Transcript, type TranscriptLimits, type Wrote } from "./transcript.ts";
import type { TranscriptBudget } from "./transcript-budget.ts";
import type { Offsets, TranscriptReader } from "./transcript-reader.ts";

/**
 * How far a program at a terminal may be ahead of its reader: after Ctrl-C users should not have to watch old output.
 */
const TERMINAL_AHEAD_BYTES = 128 * 1024;
/** How long the end of a process may take in total, from its stop or timeout on. */
const END_MS = 2_600;
/** Bounds on how long a killed job may take to report how it ended. */
const AFTER_KILL_MS = { max: 2_000, min: 500 };
/** This time passes in steps. However long the machine halts, that is one step, after which the job still has others. */
const AFTER_KILL_STEPS = 10;
/**
 * How much output is taken after a kill, beyond what its reader has room for: more than pipes and the engine can hold.
 * The rest comes from processes that have left the tree.
 */
const AFTER_KILL_BYTES = 16 * 1024 * 1024;

/** What all processes share. */
export interface ProcessParts {
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transcript: Omit<TranscriptLimits, "keepRead" | "aheadBytes">;
  /** The budget of the transcripts of all processes. */
  readonly transcripts: TranscriptBudget;
  /** Opens a place for output that does not fit in memory; undefined: there is none. */
  readonly openSpill: (() => Spill) | undefined;
  /** Time between SIGTERM and SIGKILL to a process tree. */
  readonly killGraceMs: number;
}

/** The initial state of a process. */
export interface ProcessInit {
  readonly id: string;
  readonly options: ProcessOptions;
  readonly user: string;
  readonly hasTerminal: boolean;
  /** See {@link StartOptions.aheadBytes}. */
  readonly aheadBytes?: number;
  readonly startTimeMs: number;
  /** On the monotonic clock. */
  readonly startedAt: number;
  /** Its output from an earlier run of the service, as far as it was kept. */
  readonly wrote?: Wrote;
  /** How much output was stored each time that a run of the service found it without an end. Default: never. */
  readonly recoveredAt?: readonly Offsets[];
  /** How far its stdin got in an earlier run of the service, if it had one. */
  readonly stdin?: StdinProgress;
}

/**
 * One process in a sandbox: its output, how it is stopped, how it ended. It holds a lease on the sandbox until it has
 * ended.
 */
export class Process {
  readonly id: string;
  readonly options: ProcessOptions;
  readonly hasTerminal: boolean;
  readonly startTimeMs: number;
  readonly transcript: Transcript;
  /** Where it runs, or ran. */
  readonly sandbox: LeasedSandbox;
  readonly user: string;
  /** On the monotonic clock. */
  readonly startedAt: number;
  /** See {@link ProcessInit.recoveredAt}. */
  readonly recoveredAt: readonly Offsets[];
  readonly #parts: ProcessParts;
  /** Resolves when it has ended. Never rejects. */
  readonly ended: Promise<ExitStatus>;
  #resolveEnded: (status: ExitStatus) => void = nothing;
  /** Undefined once it has ended. */
  #lease: Lease | undefined;
  /** Why it is being ended. The first reason counts. */
  #ending: ExitCause | undefined;
  #status: ExitStatus | undefined;
  /** Undefined before it is known to run, and after its end, because a job keeps a shell and a connection open. */
  #job: Job | undefined;
  #leader: LeaderId | undefined;
  #ranAt: number | undefined;
  #stdin: StdinWriter | undefined;
  #paused = false;
  #lookAgain: NodeJS.Timeout | undefined;
  /** Undefined once it has ended. */
  #disconnectPolicy: DisconnectPolicy | undefined;
  #killing: Promise<void> | undefined;
  /** Whether its job has ended, which may not be explained yet. */
  #hasEnded = false;
  /** How much output it may have written in all, once its tree was killed. */
  #mostBytes: number | undefined;
  #cancelTimeout: CancelTimer = nothing;
  /** Number of OOM kills in the sandbox before it started; 0 if that was not known in time. */
  #oomKillsBefore = 0;

  private constructor(init: ProcessInit, sandbox: LeasedSandbox, parts: ProcessParts, lease?: Lease) {
    this.id = init.id;
    this.sandbox = sandbox;
    this.#lease = lease;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.options = init.options;
    this.hasTerminal = init.hasTerminal;
    this.user = init.user;
    this.#parts = parts;
    this.startedAt = init.startedAt;
    this.startTimeMs = init.startTimeMs;
    this.recoveredAt = init.recoveredAt ?? [];
    const keepRead = init.options.onDisconnect === "DETACH" || init.options.disconnectGraceMs > 0;
    const aheadBytes = this.hasTerminal ? TERMINAL_AHEAD_BYTES : init.aheadBytes;
    const limits = { ...parts.transcript, keepRead, aheadBytes };
    this.transcript = new Transcript(limits, parts.openSpill?.(), init.wrote);
    this.transcript.onRoom = () => this.#balance();
    parts.transcripts.watch(sandbox.owner, this.transcript);
    this.#disconnectPolicy = new DisconnectPolicy(init.options, parts.clock, () => this.stop("CANCELED"));
  }

  /**
   * Starts a process. On failure the caller still owns the lease.
   * @param before called before anything starts. If it throws, nothing starts.
   */
  static async start(
    id: string,
    lease: Lease,
    request: JobRequest,
    { stdin, hold, aheadBytes, ...options }: StartOptions,
    parts: ProcessParts,
    signal: AbortSignal,
    before: (process: Process) => void = () => {},
  ): Promise<Process> {
    const { clock } = parts;
    const { user } = request;
    const times = { startTimeMs: clock.wallMs(), startedAt: clock.monotonicMs() };
    const hasTerminal = request.terminal !== undefined;
    const init = { id, options, user, hasTerminal, ...(aheadBytes && { aheadBytes }), ...times };
    const process = new Process(init, lease.sandbox, parts, lease);
    before(process);
    const output = (stream: OutputStream, chunk: Buffer): void => process.#take(stream, chunk);
    void parts.control.oomKills(lease.sandbox).then((count) => {
      // A late answer could count a kill of the process itself.
      if (process.#job === undefined) process.#oomKillsBefore = count ?? 0;
    });
    try {
      const job = await parts.runner.start(
        lease.sandbox,
        { ...request, timeoutMs: options.timeoutMs },
        output,
        signal,
      );
      process.#follow(job, lease);
      process.#limitTime();
      process.#writeStdin(job, stdin, lease, hold);
      return process;
    } catch (error) {
      process.transcript.clear();
      throw error;
    }
  }

  /** A process of an earlier run of the service that has ended. */
  static ended(init: ProcessInit, sandbox: LeasedSandbox, parts: ProcessParts, status: ExitStatus): Process {
    const process = new Process(init, sandbox, parts);
    process.#end(status);
    return process;
  }

  /**
   * A process of an earlier run of the service that may still run, in the returned job. Its callers are gone. If it
   * cannot outlive that run, because it has no trace, it is ended.
   */
  static reattach(
    init: ProcessInit,
    lease: Lease,
    parts: ProcessParts,
    known: { readonly leader: LeaderId; readonly trace: JobTrace | undefined },
  ): { readonly process: Process; readonly job: ReattachedJob } {
    const { sandbox } = lease;
    const process = new Process(init, sandbox, parts, lease);
    const output = (stream: OutputStream, chunk: Buffer): void => process.#take(stream, chunk);
    // An earlier version of the service did not store how far it got.
    const stdin = init.stdin ?? (process.#isOpen ? { passed: 0, open: true } : undefined);
    const job = new ReattachedJob({ ...known, sandbox, user: init.user, stdin }, output);
    if (stdin !== undefined) process.#stdin = new StdinWriter(job, stdin);
    process.#follow(job, lease);
    // Only if it runs: it may have ended by itself, which is then reported.
    void job.runs.then((runs) => {
      if (!runs) return;
      process.#limitTime();
      // Without a trace its output is lost, and so is how it would end.
      if (known.trace === undefined) process.stop("ENGINE_LOST");
      else process.abandon();
    });
    return { process, job };
  }

  /** The leader of its process group in the sandbox; undefined before it is known to run. */
  get leader(): LeaderId | undefined {
    return this.#leader;
  }

  /** When it got its leader, on the monotonic clock; undefined before that. */
  get ranAt(): number | undefined {
    return this.#ranAt;
  }

  /** What a later run of the service needs to reattach to it; undefined if that is impossible, or if it has ended. */
  get trace(): JobTrace | undefined {
    return this.#job?.trace;
  }

  /** How far its stdin got; undefined: it has none, or has ended. */
  get stdin(): StdinProgress | undefined {
    return this.#stdin?.progress;
  }

  /** How it ended; undefined while it runs. */
  get status(): ExitStatus | undefined {
    return this.#status;
  }

  /** Its lease on the sandbox; undefined once it has ended. */
  get lease(): Lease | undefined {
    return this.#lease;
  }

  /**
   * Writes to stdin at an offset; returns the offset of the next write. See {@link StdinWriter.write}.
   * @throws `PROCESS_STATE`, `OFFSET_OUT_OF_RANGE`, `STDIN_LOST`, or the signal's reason.
   */
  async writeStdin(offset: number, data: Uint8Array, close: boolean, signal: AbortSignal): Promise<number> {
    this.#assertRunning();
    if (!this.#isOpen || this.#stdin === undefined) {
      throw new BerthError(
        "PROCESS_STATE",
        "The process was started without keep_stdin_open: its stdin is closed.",
      );
    }
    return this.#stdin.write(offset, data, close, signal);
  }

  /** Sends a signal to its process group. @throws `PROCESS_STATE` when it has ended. */
  async signal(signal: number): Promise<void> {
    const job = this.#assertRunning();
    const release = job.hold();
    if (release === undefined) throw ended();
    try {
      const sent = await this.#parts.control.signal(this.sandbox, this.user, job, signal);
      if (!sent) throw ended();
    } finally {
      release();
    }
  }

  /** Changes its terminal's size. @throws `PROCESS_STATE` without a terminal, or when it has ended. */
  async resize(size: TerminalSize): Promise<void> {
    const job = this.#assertRunning();
    if (!this.hasTerminal)
      throw new BerthError("PROCESS_STATE", "The process has no terminal. Start it with one to resize it.");
    await job.resize(size);
  }

  /**
   * Where a reader continues that has read up to these offsets. Output that a killed service had not stored is missing,
   * and later output takes its offsets.
   * @param recoveries the length of {@link recoveredAt} when it read
   */
  continueFrom({ stdout, stderr }: Offsets, recoveries: number): Offsets {
    // Later ones have stored at least as much.
    const at = this.recoveredAt[recoveries];
    return { stdout: Math.min(stdout, at?.stdout ?? stdout), stderr: Math.min(stderr, at?.stderr ?? stderr) };
  }

  /** Makes the process wait for the `reader` of the caller that started it. Call the result when that caller leaves. */
  keep(reader: TranscriptReader): () => void {
    this.transcript.setLossless(reader);
    const leave = this.join();
    return () => {
      this.transcript.setLossless(undefined);
      leave();
    };
  }

  /** Counts a caller that repeated the request id as one that started the process. Call the result when it leaves. */
  join(): () => void {
    return this.#disconnectPolicy?.join() ?? nothing;
  }

  /** Counts a caller that attached. Call the result when it leaves. */
  follow(): () => void {
    return this.#disconnectPolicy?.follow() ?? nothing;
  }

  /** Call this if the caller that started it left before it got the process. */
  abandon(): void {
    this.#disconnectPolicy?.someoneLeft();
  }

  /** Ends the whole process tree. The given reason counts unless there is one already. */
  stop(cause: ExitCause): void {
    // What is late did not end it.
    if (this.#status !== undefined || this.#ending !== undefined || this.#hasEnded) return;
    this.#ending = cause;
    // Its first bytes may exceed the output limit before it is known to run. Then it is ended when it starts.
    if (this.#job !== undefined) this.#beginKill(cause);
  }

  #beginKill(cause: ExitCause): void {
    const { killGraceMs, clock } = this.#parts;
    // A process that started late has no time left for the grace.
    const dueMs = this.startedAt + this.options.timeoutMs + killGraceMs - clock.monotonicMs();
    const graceMs = cause === "OUTPUT_LIMIT" ? 0 : Math.max(0, Math.min(killGraceMs, dueMs));
    this.#killing = this.#kill(graceMs).catch((error: unknown) => {
      if (this.#status !== undefined) return;
      this.#parts.logger.error({ processId: this.id, err: error }, "cannot end a process tree");
      this.#finish({ exitCode: -1, message: "It could not be killed, and may still run in the sandbox." });
    });
  }

  /** Stops following it without ending it, for a service that stops and leaves its sandboxes running. */
  detach(): void {
    this.#ending ??= "ENGINE_LOST";
    this.#finish({ exitCode: -1, message: "The service stopped and left it running." });
  }

  /** Whether callers can write to its stdin. */
  get #isOpen(): boolean {
    return this.options.keepStdinOpen || this.hasTerminal;
  }

  #writeStdin(job: Job, stdin: Uint8Array, { signal }: Lease, hold = UNCOUNTED): void {
    if (!this.#isOpen && stdin.length === 0) return;
    const writer = new StdinWriter(job);
    this.#stdin = writer;
    if (stdin.length === 0) return;
    hold(() => writer.write(0, stdin, !this.#isOpen, signal)).catch(() => {
      // The job may not read all of its input. That is not an error for the caller of a command.
    });
  }

  #follow(job: Job, { signal }: Lease): void {
    this.#job = job;
    this.#leader = { pid: job.pid, startTime: job.startTime };
    this.#ranAt = this.#parts.clock.monotonicMs();
    this.#balance();
    if (this.#ending !== undefined) this.#beginKill(this.#ending);
    const onSandboxEnd = (): void => {
      this.#ending ??= "SANDBOX_TERMINATED";
      const message = signal.reason instanceof Error ? signal.reason.message : "The sandbox ended.";
      this.#finish({ exitCode: -1, message });
    };
    signal.addEventListener("abort", onSandboxEnd, { once: true });
    if (signal.aborted) onSandboxEnd();
    void this.ended.then(() => signal.removeEventListener("abort", onSandboxEnd));
    job.end
      .then((end) => this.#jobEnded(end))
      .catch((error: unknown) => {
        this.#parts.logger.error({ processId: this.id, err: error }, "cannot record the end of a process");
        this.#ending ??= "ENGINE_LOST";
        this.#finish({ exitCode: -1, message: "Its end could not be recorded." });
      });
  }

  /** Ends it at its timeout, which counts from its start. */
  #limitTime(): void {
    if (this.#status !== undefined) return;
    const { clock } = this.#parts;
    this.#cancelTimeout = clock.setTimer(this.startedAt + this.options.timeoutMs - clock.monotonicMs(), () =>
      this.stop("TIMED_OUT"),
    );
  }

  #take(stream: OutputStream, chunk: Buffer): void {
    if (this.#status !== undefined) return;
    const { outputLimitBytes } = this.options;
    const { stdout, stderr } = this.transcript.written;
    const room = Math.min(outputLimitBytes ?? Infinity, this.#mostBytes ?? Infinity) - stdout - stderr;
    this.transcript.append(stream, chunk.length > room ? chunk.subarray(0, room) : chunk);
    if (chunk.length > room) this.stop("OUTPUT_LIMIT");
    this.#balance();
  }

  /** Pauses the job while its lossless reader is too far behind. */
  #balance(): void {
    if (this.#job === undefined || this.#status !== undefined) return;
    const wait = this.#mostBytes === undefined && this.transcript.full;
    if (wait) this.#lookAgain ??= setTimeout(() => this.#relook(), READING_MS).unref();
    if (wait === this.#paused) return;
    this.#paused = wait;
    if (wait) this.#job.pause();
    else this.#job.resume();
  }

  /** Checks again: when a reader stops reading, the process may get further ahead, but no event reports that. */
  #relook(): void {
    this.#lookAgain = undefined;
    this.#balance();
  }

  async #kill(graceMs: number): Promise<void> {
    const { control, clock } = this.#parts;
    // A process that started late also ends late.
    const endBy = Math.min(clock.monotonicMs(), this.startedAt + this.options.timeoutMs) + END_MS;
    const job = this.#assertRunning();
    const release = job.hold();
    if (release === undefined) return;
    try {
      await control.killTree(this.sandbox, this.user, job, graceMs);
    } finally {
      release();
    }
    // Output from before its end may still be on the way. No reader holds it back any more.
    const { stdout, stderr } = this.transcript.written;
    this.#mostBytes = stdout + stderr + AFTER_KILL_BYTES;
    this.#balance();
    const leftMs = Math.min(Math.max(endBy - clock.monotonicMs(), AFTER_KILL_MS.min), AFTER_KILL_MS.max);
    this.#finishAfter(leftMs / AFTER_KILL_STEPS, AFTER_KILL_STEPS);
  }

  /** Ends the process without an exit code, unless it has ended within these steps. */
  #finishAfter(stepMs: number, steps: number): void {
    if (this.#status !== undefined) return;
    if (steps === 0) this.#finish({ exitCode: -1, message: "" });
    else this.#parts.clock.setTimer(stepMs, () => this.#finishAfter(stepMs, steps - 1));
  }

  async #jobEnded(end: JobEnd): Promise<void> {
    if (this.#status !== undefined) return;
    this.#hasEnded = true;
    if (end.kind === "lost") {
      // Why the sandbox ended is reported soon.
      if (end.error.reason === "SANDBOX_TERMINATED" && this.#lease !== undefined)
        await sandboxEnd(this.sandbox, this.#lease.signal, this.#parts.control);
      this.#ending ??= end.error.reason === "SANDBOX_TERMINATED" ? "SANDBOX_TERMINATED" : "ENGINE_LOST";
      return this.#finish({ exitCode: -1, message: end.error.message });
    }
    // If Berth is ending it, report the end only when the whole tree is gone.
    await this.#killing;
    const lease = this.#lease;
    const unexplained = this.#ending === undefined && mayBeOutOfMemory(end.code);
    if (unexplained && lease !== undefined) {
      const kills = await this.#parts.control.wasOomKilled(this.sandbox, this.#oomKillsBefore);
      if (kills) this.#ending ??= "OUT_OF_MEMORY";
      // If the sandbox has ended too, no shell answers. Its end is reported soon, and becomes the cause.
      else if (kills === undefined) await sandboxEnd(this.sandbox, lease.signal, this.#parts.control);
    }
    this.#finish({ exitCode: end.code, message: end.message ?? "" });
  }

  #finish(how: { readonly exitCode: number; readonly message: string }): void {
    if (this.#status !== undefined) return;
    this.#cancelTimeout();
    const signal = signalOf(how.exitCode);
    const { stdout, stderr } = this.transcript.written;
    this.#end({
      cause: this.#ending ?? (signal > 0 ? "SIGNALED" : "EXITED"),
      exitCode: how.exitCode,
      signal,
      durationMs: this.#parts.clock.monotonicMs() - this.startedAt,
      stdoutBytes: stdout,
      stderrBytes: stderr,
      message: how.message,
    });
  }

  #end(status: ExitStatus): void {
    this.#status = status;
    this.#job?.close();
    this.#job = undefined;
    this.#stdin = undefined;
    this.transcript.end();
    this.#lease?.release();
    this.#resolveEnded(status);
    // It stays readable for a day, so release what it needed only while it ran.
    this.#cancelTimeout = nothing;
    this.#disconnectPolicy?.end();
    this.#disconnectPolicy = undefined;
    this.#resolveEnded = nothing;
    this.#killing = undefined;
    this.#lease = undefined;
    this.transcript.onRoom = nothing;
  }

  #assertRunning(): Job {
    if (this.#status !== undefined || this.#job === undefined) throw ended();
    return this.#job;
  }
}

function nothing(): void {}

function ended(): BerthError {
  return new BerthError("PROCESS_STATE", "The process has ended.");
}
