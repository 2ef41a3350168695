import { setTimeout as sleep } from "node:timers/promises";
import { within } from "../base/async.ts";
import { type ByteString, fromBytes, fromText } from "../base/byte-string.ts";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import { type MemoryShare, noMemory } from "../base/memory-budget.ts";
import { orSandboxEnd } from "../processes/shell/errors.ts";
import { type RequestedPath, resolveEntry, resolvePath } from "./path.ts";
import { RunningScript, type ScriptHost, type ScriptOptions } from "./running-script.ts";
import { type Subject, scriptError, withoutVanished } from "./script.ts";
import type { TemporaryNames } from "./temporary-names.ts";

interface OperationInit extends ScriptHost {
  readonly clock: Clock;
  readonly names: TemporaryNames;
  /** Closed when the operation ends, as is `ahead`. */
  readonly memory: MemoryShare;
  /** The call's signal. */
  readonly signal: AbortSignal;
  /** Called once, when the operation ends. */
  readonly onClose: () => void;
}

/** Limit for the output of a script that reports the attributes of a file and a few paths. */
const MAX_ANSWER_BYTES = 64 * 1024;

interface RunOptions {
  readonly env?: ScriptOptions["env"];
  /** How much it may write, if that is more than attributes and paths. */
  readonly maxBytes?: number;
}

/** How long cleanup may take after a script was killed. */
const CLEANUP_MS = 30_000;
/** How long a caller waits for scripts to end and for their cleanup. After that, they continue in the background. */
const END_MS = 1_500;

/**
 * One operation on the files of a sandbox. It holds a lease on the sandbox until it is closed and nothing of it is
 * left. Its script is stopped when the call is aborted, when the sandbox ends, or when there is no progress for the
 * sandbox's command timeout.
 */
export class Operation {
  readonly signal: AbortSignal;
  readonly #init: OperationInit;
  readonly #deadline = new AbortController();
  readonly #onAbort = (): void => void this.#stop();
  #cancelTimer: CancelTimer = () => {};
  #movedAt = 0;
  #running: Promise<RunningScript> | undefined;
  #abandoning: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  /** When callers stop waiting for the end, on the monotonic clock. Undefined until it starts to end. */
  #endBy: number | undefined;

  constructor(init: OperationInit) {
    this.#init = init;
    this.signal = AbortSignal.any([init.signal, init.lease.signal, this.#deadline.signal]);
    this.signal.addEventListener("abort", this.#onAbort, { once: true });
    this.progressed();
    this.#watchProgress();
  }

  /** Identifies the sandbox's container and the user. Operations with the same scope see the same files. */
  get scope(): string {
    const { lease, user } = this.#init;
    return JSON.stringify([lease.sandbox.ref, user]);
  }

  /** What it gathers is taken from this, which is closed when it ends. */
  get memory(): MemoryShare {
    return this.#init.memory;
  }

  /** Returns a name for a file until it is atomically moved into place. */
  temporaryName(): string {
    return this.#init.names.next();
  }

  /** Whether a file, or a directory above it, has a temporary name. */
  isTemporary(name: ByteString): boolean {
    return this.#init.names.hides(name);
  }

  /** Records progress: restarts the timeout. */
  progressed(): void {
    this.#movedAt = this.#init.clock.monotonicMs();
  }

  /** Why it failed with an error: what aborted it, or the end of the sandbox, rather than what these caused. */
  causeOf(error: unknown): Promise<unknown> {
    const { lease, control } = this.#init;
    return orSandboxEnd(error, lease.sandbox, this.signal, control);
  }

  /** Waits, which does not count as lack of progress. Rejects when the operation must end. */
  async rest(ms: number): Promise<void> {
    this.#cancelTimer();
    await sleep(ms, undefined, { signal: this.signal });
    this.progressed();
    this.#watchProgress();
  }

  /** Makes a path in the sandbox absolute. @throws `INVALID_ARGUMENT`. */
  path(requested: RequestedPath): ByteString {
    return resolvePath(fromText(this.#init.lease.sandbox.spec.workingDir), requested);
  }

  /** The same for something that is removed or moved: see {@link resolveEntry}. */
  entry(requested: RequestedPath): ByteString {
    return resolveEntry(fromText(this.#init.lease.sandbox.spec.workingDir), requested);
  }

  /**
   * Runs a script to its end and returns its output.
   * @throws the error of {@link scriptError} if it fails; `UNSUPPORTED` if it writes more than `maxBytes`;
   *   `TOO_MANY_OPERATIONS` if there is no memory for what it writes.
   */
  async run(text: string, subject: Subject, { env, maxBytes }: RunOptions = {}): Promise<ByteString> {
    const running = await this.start(text, { env });
    return fromBytes(await this.collect(running, subject, maxBytes));
  }

  /** Starts a script. One at a time. */
  async start(text: string, options: Partial<ScriptOptions> = {}): Promise<RunningScript> {
    throwIfAborted(this.signal);
    const { stdin = false, env, isNoise } = options;
    this.#running = RunningScript.start(this.#init, text, { stdin, env, isNoise, signal: this.signal });
    const running = await this.#running;
    // A script that started too late is stopped, in the background if that takes long.
    throwIfAborted(this.signal);
    return running;
  }

  /** Reads a script's output to its end. @throws as {@link run} does. */
  async collect(running: RunningScript, subject: Subject, maxBytes = MAX_ANSWER_BYTES): Promise<Buffer> {
    // Short answers do not count: a watch may get any number of them.
    const counts = maxBytes > MAX_ANSWER_BYTES;
    const output = await running.readAll(
      maxBytes,
      () => new BerthError("UNSUPPORTED", "A tool of the sandbox's image wrote more output than expected."),
      (bytes) => (!counts || this.memory.take(bytes) ? undefined : noMemory()),
    );
    await this.succeed(running, subject);
    return output;
  }

  /** Waits for the end of a script. @throws the error of {@link scriptError} if it fails. */
  async succeed(running: RunningScript, subject: Subject): Promise<void> {
    const end = await running.ended;
    if (end.code === 0) return;
    // A script that was stopped failed because of that.
    throwIfAborted(this.signal);
    throw scriptError(subject, end);
  }

  /** Like {@link succeed}, but accepts a `find` that reports only files that vanished meanwhile. */
  async succeedBarVanished(running: RunningScript, subject: Subject): Promise<void> {
    const { code, stderr } = await running.ended;
    const onlyVanished = code === 1 && stderr !== "" && withoutVanished(stderr) === "";
    if (!onlyVanished) await this.succeed(running, subject);
  }

  /**
   * Abandons a script, and runs `cleanup` if it was killed and could not clean up itself. Returns when that is done, or
   * after a time limit. Never rejects.
   */
  abandon(running: RunningScript, cleanup: string): Promise<void> {
    this.#abandoning ??= this.#abandon(running, cleanup);
    return this.#untilEndBy(this.#abandoning);
  }

  /**
   * Stops what runs and releases the lease. Returns when that is done, or after a time limit. Idempotent, never
   * rejects.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#untilEndBy(this.#closing);
  }

  /** Waits for the end of a script. The time limit starts with the first such wait. */
  #untilEndBy(end: Promise<void>): Promise<void> {
    const { clock } = this.#init;
    this.#endBy ??= clock.monotonicMs() + END_MS;
    return within(end, Math.max(0, this.#endBy - clock.monotonicMs()), clock);
  }

  /** Checks when the timeout would expire. Usually there has been progress meanwhile. */
  #watchProgress(): void {
    const { clock, lease } = this.#init;
    const { commandTimeoutMs } = lease.sandbox.spec;
    const leftMs = this.#movedAt + commandTimeoutMs - clock.monotonicMs();
    this.#cancelTimer = clock.setTimer(Math.max(leftMs, 1), () => {
      if (clock.monotonicMs() - this.#movedAt < commandTimeoutMs) return this.#watchProgress();
      this.#deadline.abort(
        new BerthError(
          "DEADLINE_EXCEEDED",
          `The operation made no progress for ${commandTimeoutMs} ms, the sandbox's command_timeout.`,
        ),
      );
    });
  }

  async #close(): Promise<void> {
    this.#cancelTimer();
    this.signal.removeEventListener("abort", this.#onAbort);
    await this.#abandoning;
    await this.#stop();
    this.#init.lease.release();
    this.#init.memory.close();
    this.#init.ahead.close();
    this.#init.onClose();
  }

  async #stop(): Promise<void> {
    const running = await this.#running?.catch(() => undefined);
    const { signal } = this;
    await running?.stop(
      signal.aborted ? abortError(signal) : new BerthError("CANCELED", "The operation has ended."),
    );
  }

  async #abandon(running: RunningScript, cleanup: string): Promise<void> {
    await running.stop(new BerthError("CANCELED", "The operation was given up."));
    if (!(await running.endedInOrder)) await this.#cleanUp(cleanup);
  }

  async #cleanUp(text: string): Promise<void> {
    const { lease, logger } = this.#init;
    if (lease.signal.aborted) return;
    // Do not use the operation's own signal, which may already be aborted.
    const signal = AbortSignal.any([lease.signal, AbortSignal.timeout(CLEANUP_MS)]);
    try {
      const running = await RunningScript.start(this.#init, text, { stdin: false, signal });
      const onAbort = (): void => void running.stop(abortError(signal));
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
      await running.ended.finally(() => signal.removeEventListener("abort", onAbort));
    } catch (error) {
      const { sandboxId } = lease.sandbox;
      logger.warn({ sandboxId, err: error }, "a temporary file may be left in a sandbox");
    }
  }
}
