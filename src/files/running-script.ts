import { within } from "../base/async.ts";
import { ByteQueue } from "../base/byte-queue.ts";
import { type BerthError, hasReason } from "../base/errors.ts";
import { LastLines } from "../base/last-lines.ts";
import type { Logger } from "../base/logger.ts";
import type { MemoryShare } from "../base/memory-budget.ts";
import type { OpenFile } from "../engine/port.ts";
import type { ProcessControl } from "../processes/control.ts";
import type { Job, JobRunner } from "../processes/shell/job.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { ScriptFailure } from "./script.ts";

export interface ScriptHost {
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly logger: Logger;
  readonly lease: Lease;
  readonly user: string;
  /** Limits what its scripts have written and nobody has read. */
  readonly ahead: MemoryShare;
}

/** How much of the end of stderr to keep. */
const MAX_STDERR = 16 * 1024;
/** How long a script that reads stdin may take to clean up after EOF, unless it is stopped by a signal. */
const CLEANUP_MS = 20_000;
const CHECK_MS = 500;
/** Exit codes from this on mean a signal. */
const FIRST_SIGNAL_CODE = 128;
/** How long it may take to open a file from outside: a sandbox may have many processes to search. */
const OPEN_MS = 5_000;
/** How long the report of a killed script's end may take before the script is stopped. */
const LEAVE_MS = 500;
const KILL_GRACE_MS = 2_000;
/** How long a killed script may take to report its end. */
const AFTER_KILL_MS = 2_000;

/** Options of a script. */
export interface ScriptOptions {
  readonly stdin: boolean;
  /** Variables of its environment. Other users of the sandbox see a script's text, but not these. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Whether to drop a line of its stderr. */
  readonly isNoise?: ((line: string) => boolean) | undefined;
}

/** A script that runs in a sandbox. Its output can be read as a stream. It must be stopped on every path. */
export class RunningScript {
  readonly #host: ScriptHost;
  readonly #takesStdin: boolean;
  readonly #output: OutputQueue;
  readonly #end = Promise.withResolvers<ScriptFailure>();
  #job: Job | undefined;
  readonly #stderr: LastLines;
  #over = false;
  #stopping: Promise<void> | undefined;
  /** Cancels the wait for the script to read its stdin. */
  #onStop: () => void = () => {};

  private constructor(host: ScriptHost, { stdin, isNoise }: ScriptOptions) {
    this.#host = host;
    this.#takesStdin = stdin;
    this.#output = new OutputQueue(host.ahead);
    this.#stderr = new LastLines(MAX_STDERR, isNoise);
    this.#end.promise.catch(() => {});
  }

  /** Starts a script; resolves when it runs. It may run even if the signal was aborted. */
  static async start(
    host: ScriptHost,
    text: string,
    options: ScriptOptions & { readonly signal: AbortSignal },
  ): Promise<RunningScript> {
    const { lease, user, runner } = host;
    const running = new RunningScript(host, options);
    const job = await runner.start(
      lease.sandbox,
      {
        argv: ["/bin/sh", "-c", text],
        isOwnScript: true,
        env: options.env ?? {},
        workingDir: "/",
        user,
        stdin: options.stdin,
        terminal: undefined,
      },
      (stream, chunk) => {
        if (stream === "stdout") running.#output.push(chunk);
        else running.#stderr.add(chunk);
      },
      options.signal,
    );
    running.#follow(job);
    return running;
  }

  /** Resolves when it has ended. Rejects if it is unknown how it ended. */
  get ended(): Promise<ScriptFailure> {
    return this.#end.promise;
  }

  get over(): boolean {
    return this.#over;
  }

  /** Resolves when it has ended, with whether it could clean up: no signal ended it. */
  get endedInOrder(): Promise<boolean> {
    return this.#end.promise.then(
      ({ code }) => code < FIRST_SIGNAL_CODE,
      () => false,
    );
  }

  /** Returns the next bytes of stdout; undefined at the end. Rejects when the script is stopped. */
  read(): Promise<Buffer | undefined> {
    return this.#output.next();
  }

  /**
   * Reads the rest of stdout. If that exceeds `maxBytes`, stops the script and throws what `tooMuch` returns.
   * @param refuse called with the size of each piece; an error that it returns is thrown too. Default: none is refused.
   */
  async readAll(
    maxBytes: number,
    tooMuch: () => BerthError,
    refuse: (bytes: number) => BerthError | undefined = () => undefined,
  ): Promise<Buffer> {
    const bytes = new ByteQueue();
    for (let chunk = await this.read(); chunk !== undefined; chunk = await this.read()) {
      bytes.push(chunk);
      const error = bytes.size > maxBytes ? tooMuch() : refuse(chunk.length);
      if (error === undefined) continue;
      await this.stop(error);
      throw error;
    }
    return bytes.take(bytes.size);
  }

  /**
   * Writes to stdin; resolves when it accepts more. One write at a time. If nothing reads it any more, the data is
   * dropped, and it resolves when the script has ended: a writer that never waited would keep the end from being seen.
   */
  async write(data: Uint8Array): Promise<void> {
    if (this.#over || this.#job === undefined || this.#stopping !== undefined) return;
    const stopped = Promise.withResolvers<void>();
    this.#onStop = stopped.resolve;
    const written = this.#job.writeStdin(data).catch(async (error: unknown) => {
      if (!hasReason(error, "PROCESS_STATE")) throw error;
      await this.endedInOrder;
    });
    await Promise.race([written, stopped.promise]);
  }

  closeStdin(): void {
    this.#job?.closeStdin();
  }

  /**
   * Opens the regular file that it has open as this descriptor, to read it without its pipes, which are then paused
   * until {@link leave}. Undefined if that is impossible or takes too long, or if the script has ended: a later script
   * of the same shell may have another file open.
   */
  async openFile(descriptor: number): Promise<OpenFile | undefined> {
    const job = this.#job;
    if (job === undefined) return undefined;
    let file: OpenFile | undefined;
    let isLate = false;
    this.#output.hold();
    const opening = this.#openFile(job, descriptor).then((opened) => {
      if (isLate) void opened?.close().catch(() => {});
      else file = opened;
    });
    opening.catch(() => {});
    try {
      await within(Promise.race([opening, this.endedInOrder]), OPEN_MS);
      if (file !== undefined && !this.#over && this.#stopping === undefined) return file;
    } catch (error) {
      this.#output.release();
      throw error;
    } finally {
      isLate = true;
    }
    this.#output.release();
    await file?.close();
    return undefined;
  }

  async #openFile(job: Job, descriptor: number): Promise<OpenFile | undefined> {
    const { control, lease } = this.#host;
    const outside = await control.outside(lease.sandbox);
    return outside?.openFile(job, descriptor);
  }

  /**
   * Ends it if it still runs, first with EOF on its stdin. Readers get the error. Returns when nothing of it is left,
   * or nothing more can be done. Never rejects.
   */
  stop(reason: BerthError): Promise<void> {
    this.#stopping ??= this.#stop(reason);
    return this.#stopping;
  }

  /**
   * Kills a script that has nothing to clean up and whose remaining output is not needed, because its file is open
   * ({@link openFile}). If that does not end it, it is stopped. Never rejects.
   */
  leave(file: OpenFile, reason: BerthError): Promise<void> {
    this.#stopping ??= this.#leave(file, reason);
    return this.#stopping;
  }

  async #leave(file: OpenFile, reason: BerthError): Promise<void> {
    // It stops the process at once, so that the end of the output does not let it continue.
    const killing = file.killHolder();
    this.#output.end(reason);
    if ((await killing) && this.#job !== undefined) await within(this.#job.end, LEAVE_MS);
    if (!this.#over) await this.#stop(reason);
  }

  #follow(job: Job): void {
    this.#job = job;
    this.#output.attach(job);
    job.end
      .then((end) => {
        this.#over = true;
        if (end.kind === "lost") {
          this.#output.end(end.error);
          this.#end.reject(end.error);
        } else {
          this.#output.end();
          this.#end.resolve({ code: end.code, stderr: this.#stderr.text });
        }
      })
      .catch((error: unknown) =>
        this.#host.logger.error({ err: error }, "cannot record the end of a script"),
      );
  }

  async #stop(reason: BerthError): Promise<void> {
    this.#output.end(reason);
    this.#onStop();
    const job = this.#job;
    if (this.#over || job === undefined) return;
    // If the sandbox is ending, its processes end too.
    const { signal } = this.#host.lease;
    if (this.#takesStdin && !signal.aborted) {
      job.closeStdin();
      await this.#cleanedUp(job);
    }
    if (!this.#over && !signal.aborted) await this.#kill(job);
    job.close();
  }

  async #cleanedUp(job: Job): Promise<void> {
    const { control, lease } = this.#host;
    const since = performance.now();
    while (!this.#over && performance.now() - since < CLEANUP_MS) {
      await within(job.end, CHECK_MS);
      const outside = this.#over ? undefined : await control.outside(lease.sandbox);
      if ((await outside?.stateOf(job)) === "stopped") return;
    }
  }

  async #kill(job: Job): Promise<void> {
    const { control, lease, user, logger } = this.#host;
    const { sandbox } = lease;
    const release = job.hold();
    if (release === undefined) return;
    try {
      await control.killTree(sandbox, user, job, KILL_GRACE_MS);
    } catch (error) {
      if (!this.#over)
        logger.warn(
          { sandboxId: sandbox.sandboxId, err: error },
          "cannot end the script of a file operation",
        );
    } finally {
      release();
    }
    await within(job.end, AFTER_KILL_MS);
  }
}

interface Flow {
  pause(): void;
  resume(): void;
}

/** The source is paused when the queue exceeds this, and resumed at half of it. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Bytes returned at once. Less means fewer copies, more means fewer messages. */
const MAX_AT_ONCE = 256 * 1024;

/** A queue of bytes from a job to a reader that reads at its own pace. */
export class OutputQueue {
  readonly #memory: MemoryShare | undefined;
  #bytes = new ByteQueue();
  /** Bytes for which there was no memory. They are read before the source goes on. */
  #uncounted = 0;
  #paused = false;
  #held = false;
  #flow: Flow | undefined;
  #over: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  /** @param memory limits what it holds, in addition to its own limit. Undefined: nothing else does. */
  constructor(memory?: MemoryShare) {
    this.#memory = memory;
  }

  /** Sets the source, which may become known only after its first bytes. */
  attach(flow: Flow): void {
    this.#flow = flow;
    if (this.#paused) flow.pause();
  }

  push(chunk: Buffer): void {
    if (this.#over !== undefined || chunk.length === 0) return;
    this.#bytes.push(chunk);
    if (this.#memory?.take(chunk.length) === false) this.#uncounted += chunk.length;
    this.#balance();
    this.#wake?.();
  }

  /** Pauses the source until {@link release}, regardless of the queue. */
  hold(): void {
    this.#held = true;
    this.#balance();
  }

  release(): void {
    this.#held = false;
    this.#balance();
  }

  /** Ends the queue. With an error, also drops its contents. Only the first call counts. */
  end(error?: unknown): void {
    if (this.#over !== undefined) return;
    this.#over = { error };
    if (error !== undefined) {
      this.#giveBack(this.#bytes.size);
      this.#bytes = new ByteQueue();
    }
    this.#balance();
    this.#wake?.();
  }

  /** Returns the next bytes; undefined at the end. Only one reader is allowed. */
  async next(): Promise<Buffer | undefined> {
    while (this.#bytes.size === 0) {
      if (this.#over?.error !== undefined) throw this.#over.error;
      if (this.#over !== undefined) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#bytes.take(Math.min(this.#bytes.size, MAX_AT_ONCE));
    this.#giveBack(taken.length);
    this.#balance();
    return taken;
  }

  #giveBack(bytes: number): void {
    const uncounted = Math.min(bytes, this.#uncounted);
    this.#uncounted -= uncounted;
    this.#memory?.giveBack(bytes - uncounted);
  }

  #balance(): void {
    const isFull =
      this.#uncounted > 0 || this.#bytes.size > (this.#paused ? MAX_QUEUED_BYTES / 2 : MAX_QUEUED_BYTES);
    const wait = this.#over === undefined && (this.#held || isFull);
    if (wait === this.#paused) return;
    this.#paused = wait;
    if (wait) this.#flow?.pause();
    else this.#flow?.resume();
  }
}
