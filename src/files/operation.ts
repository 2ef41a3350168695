import { setTimeout as sleep } from "node:timers/promises";
import { within } from "../base/async.ts";
import { type ByteString, fromBytes, fromText } from "../base/byte-string.ts";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import { type RequestedPath, resolvePath } from "./path.ts";
import { RunningScript, type ScriptHost, type ScriptOptions } from "./running-script.ts";
import { type Subject, scriptError, withoutVanished } from "./script.ts";
import type { TemporaryNames } from "./temporary-names.ts";

interface OperationInit extends ScriptHost {
  readonly clock: Clock;
  readonly names: TemporaryNames;
  /** The call's. */
  readonly signal: AbortSignal;
  /** Called once, at its end. */
  readonly onClose: () => void;
}

/** The output of a script that is not streamed. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** How long cleanup may take after a script that was killed. */
const CLEANUP_MS = 30_000;
/** How long a caller waits for scripts to end and for their cleanup. What takes longer goes on without it. */
const END_MS = 1_500;

/**
 * One operation on the files of a sandbox. It holds the sandbox's lease until it
 * is closed and nothing of it is left. Its script is stopped when the call is
 * aborted, the sandbox ends, or there was no progress for the sandbox's command
 * timeout.
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
  /** On the monotonic clock. Undefined until it starts to end. */
  #endBy: number | undefined;

  constructor(init: OperationInit) {
    this.#init = init;
    this.signal = AbortSignal.any([init.signal, init.lease.signal, this.#deadline.signal]);
    this.signal.addEventListener("abort", this.#onAbort, { once: true });
    this.progressed();
    this.#watchProgress();
  }

  /** The sandbox's container and the user: what one such operation sees, another sees as well. */
  get scope(): string {
    const { lease, user } = this.#init;
    return JSON.stringify([lease.sandbox.ref, user]);
  }

  /** A name for a file until it is moved into place in one step. */
  temporaryName(): string {
    return this.#init.names.next();
  }

  /** Whether a file, or a directory that it is in, waits to be moved into place. */
  isTemporary(name: ByteString): boolean {
    return this.#init.names.hides(name);
  }

  /** There was progress: restarts the timeout. */
  progressed(): void {
    this.#movedAt = this.#init.clock.monotonicMs();
  }

  /** Waits, which does not count as lack of progress. Rejects when the operation has to end. */
  async rest(ms: number): Promise<void> {
    this.#cancelTimer();
    await sleep(ms, undefined, { signal: this.signal });
    this.progressed();
    this.#watchProgress();
  }

  /** An absolute path in the sandbox. @throws `INVALID_ARGUMENT`. */
  path(requested: RequestedPath): ByteString {
    return resolvePath(fromText(this.#init.lease.sandbox.spec.workingDir), requested);
  }

  /** Runs a script to its end and returns what it wrote. @throws what {@link scriptError} says where it fails. */
  async run(text: string, subject: Subject): Promise<ByteString> {
    const running = await this.start(text);
    return fromBytes(await this.collect(running, subject));
  }

  /** Starts a script. One at a time. */
  async start(text: string, options: Partial<ScriptOptions> = {}): Promise<RunningScript> {
    throwIfAborted(this.signal);
    const { stdin = false, isNoise } = options;
    this.#running = RunningScript.start(this.#init, text, { stdin, isNoise, signal: this.signal });
    const running = await this.#running;
    // One that started too late is stopped, without the caller where that takes long.
    throwIfAborted(this.signal);
    return running;
  }

  /** Reads a script to its end. @throws what {@link scriptError} says where it fails. */
  async collect(running: RunningScript, subject: Subject): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES) {
        const error = new BerthError(
          "UNSUPPORTED",
          "A tool of the sandbox's image wrote more output than expected.",
        );
        await running.stop(error);
        throw error;
      }
    }
    await this.succeed(running, subject);
    return Buffer.concat(chunks, bytes);
  }

  /** Waits for the end of a script. @throws what {@link scriptError} says where it fails. */
  async succeed(running: RunningScript, subject: Subject): Promise<void> {
    const end = await running.ended;
    if (end.code === 0) return;
    // One that was stopped failed for that reason.
    throwIfAborted(this.signal);
    throw scriptError(subject, end);
  }

  /** Like {@link succeed}, for a `find` that may complain of nothing but files that vanished meanwhile. */
  async succeedBarVanished(running: RunningScript, subject: Subject): Promise<void> {
    const { code, stderr } = await running.ended;
    const onlyVanished = code === 1 && stderr !== "" && withoutVanished(stderr) === "";
    if (!onlyVanished) await this.succeed(running, subject);
  }

  /**
   * Gives a script up, and runs another to clean up after it where it was killed
   * and could not do so itself. Returns when that is done, or after a while without
   * it. Never rejects.
   */
  abandon(running: RunningScript, cleanup: string): Promise<void> {
    this.#abandoning ??= this.#abandon(running, cleanup);
    return this.#untilEndBy(this.#abandoning);
  }

  /**
   * Stops what runs and releases the lease. Returns when that is done, or after a
   * while without it. Idempotent, never rejects.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#untilEndBy(this.#closing);
  }

  /** Waits for an end, but only within the time of the first one. */
  #untilEndBy(end: Promise<void>): Promise<void> {
    const { clock } = this.#init;
    this.#endBy ??= clock.monotonicMs() + END_MS;
    return within(end, Math.max(0, this.#endBy - clock.monotonicMs()), clock);
  }

  /** Checks again when the timeout would expire; usually there was progress meanwhile. */
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
    // Not the operation's own signal: it may be aborted already.
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
