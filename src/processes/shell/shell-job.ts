import { setImmediate } from "node:timers/promises";
import { rest } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import { MarkerScanner, newMarkerNonce } from "../../base/markers.ts";
import type { OutputStream, SpawnedProcess, TerminalSize } from "../../engine/port.ts";
import { signalOf } from "../record.ts";
import { noProcesses, tooSlow } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobTrace } from "./job.ts";

/** How long a shell may take to start a job. */
export const START_TIMEOUT_MS = 30_000;
/** How long bytes of a dialogue that may begin a marker are held back. */
const MAX_HOLD_MS = 20;
/** When to start asking the engine. The shell itself normally reports the end of short jobs. */
export const ASK_ENGINE_AFTER_MS = 1_000;
/**
 * How many pauses markers and output may take to arrive after the engine has reported that the shell ended. Pauses in
 * which the output is read: it may wait for its reader, or for a halted machine, as long as it has to.
 */
const LATE_OUTPUT_PAUSES = 20;
const LATE_OUTPUT_PAUSE_MS = 25;

/** What a job needs of its request. Its command and its variables may be long. */
type KeptRequest = Pick<JobRequest, "workingDir" | "stdin" | "terminal"> & {
  readonly [name in "isDialogue" | "limit" | "onLate"]: JobRequest[name];
};

/**
 * A job in a shell that writes markers for the job's start and end to the job's own streams. Implements the state
 * machine of these markers, with the engine as a second source for the end. See README.md.
 */
export abstract class ShellJob implements Job {
  abstract readonly pid: number;
  abstract readonly startTime: string;
  readonly unsure = false;
  readonly nonce = newMarkerNonce();
  protected readonly nonceBytes = Buffer.from(this.nonce, "latin1");
  protected readonly request: KeptRequest;
  /** The shell's process; undefined until the engine has returned it. */
  protected spawned: SpawnedProcess | undefined;
  #output: JobOutput;
  /** Undefined: nothing more on the stream comes from the job or its shell. */
  readonly #scanners: Record<OutputStream, MarkerScanner | undefined>;
  readonly #codes = new Map<OutputStream, number>();
  readonly #start = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<JobEnd>();
  #startTimer: NodeJS.Timeout | undefined;
  #watchTimer: NodeJS.Timeout | undefined;
  /** Timer that passes on bytes that a dialogue's scanners hold back. */
  #holdTimer: NodeJS.Timeout | undefined;
  /** Cancels the request to the engine once the end is known. */
  #asking: AbortController | undefined;
  #hasStarted = false;
  #hasEnded = false;
  #streamsOver = false;
  #trickles = false;
  #paused = false;

  constructor(request: JobRequest, output: JobOutput) {
    const { workingDir, stdin, terminal, isDialogue, limit, onLate } = request;
    this.request = { workingDir, stdin, terminal, isDialogue, limit, onLate };
    this.#output = output;
    this.#scanners = {
      stdout: this.#startScanner(),
      stderr: this.#outputScanner("stderr"),
    };
    this.#start.promise.catch(() => {});
  }

  /** Resolves when the job runs or has run. Rejects if it does not, or if that is unknown. */
  get started(): Promise<void> {
    return this.#start.promise;
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  get trace(): JobTrace | undefined {
    const handle = this.spawned?.handle;
    // With a terminal, the job replaces its shell.
    return handle === undefined
      ? undefined
      : { handle, nonce: this.request.terminal ? undefined : this.nonce };
  }

  pause(): void {
    this.#paused = true;
    this.#trickles = false;
    if (!this.#hasEnded) this.spawned?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#trickles = false;
    if (!this.#hasEnded) this.spawned?.resume();
  }

  trickle(): void {
    this.#paused = false;
    this.#trickles = true;
    if (!this.#hasEnded) this.spawned?.trickle();
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    await this.spawned?.writeStdin(data);
  }

  closeStdin(): void {
    this.spawned?.closeStdin();
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.spawned?.resize(size);
  }

  abstract hold(): (() => void) | undefined;

  close(): void {
    this.finish({ kind: "lost", error: new BerthError("CANCELED", "The process was detached.") });
  }

  protected get hasStarted(): boolean {
    return this.#hasStarted;
  }

  protected get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Whether the shell has reported how the job ended, on at least one stream. */
  protected get hasExitCode(): boolean {
    return this.#codes.size > 0;
  }

  protected limitStart(): void {
    this.#startTimer = setTimeout(() => {
      this.fail(tooSlow());
      this.close();
    }, START_TIMEOUT_MS).unref();
  }

  /** Call this if the job does not start. */
  protected fail(error: unknown): void {
    this.#start.reject(error);
  }

  /** Call this if nobody waits for the start any more. The job may still start, and is then passed to `onLate`. */
  protected giveUp(error: unknown): void {
    this.#output = () => {};
    this.fail(error);
  }

  /**
   * Watches for an end that no marker reports: that of a job with a terminal, or of a killed shell whose pipes others
   * hold.
   */
  protected watchEnd(delayMs: number): void {
    this.#watchTimer = setTimeout(() => void this.#askEngine(), delayMs).unref();
  }

  /** Takes output of the shell and its job. */
  protected take(stream: OutputStream, chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      // With a terminal, no marker follows the first.
      if (this.#hasStarted && this.request.terminal) {
        this.#output(stream, rest);
        return;
      }
      const scanner = this.#scanners[stream];
      const found = scanner?.push(rest);
      if (found === undefined) {
        clearTimeout(this.#holdTimer);
        // A marker is written in one piece, so an incomplete one that does not continue is not a marker. If it was one
        // after all, the engine would still report the end.
        if (scanner?.holds && this.#hasStarted && this.request.isDialogue)
          this.#holdTimer = setTimeout(() => this.#flush(), MAX_HOLD_MS).unref();
        return;
      }
      this.#onMarker(stream, found.text);
      rest = found.rest;
    }
  }

  /** Call this when no more markers can come, for a job that has started. */
  protected streamsOver(): void {
    this.#streamsOver = true;
    this.#flush();
    void this.#askEngine();
  }

  /** Takes what arrives on stdout before the start marker. */
  protected beforeStart(chunk: Buffer): void {
    this.#output("stdout", chunk);
  }

  /** Called when the job has started. @param leader as its shell reports it; undefined if only the end was reported. */
  protected abstract onStart(leader: string | undefined): void;

  /** Returns the scanner for a stream after its end marker; undefined: the rest does not matter. */
  protected afterEnd(): MarkerScanner | undefined {
    return undefined;
  }

  /**
   * Called with the last marker of a stream: `C` or `D`. Without an end marker before it, `D` means that the directory
   * cannot be entered.
   */
  protected abstract onLastMarker(stream: OutputStream, text: string): void;

  /** Called when the engine reports that the shell has ended. */
  protected onEngineEnd(end: JobEnd): void {
    this.finish(end);
  }

  /** Ends the job. Only the first call counts. */
  protected finish(end: JobEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    clearTimeout(this.#startTimer);
    clearTimeout(this.#watchTimer);
    clearTimeout(this.#holdTimer);
    this.#asking?.abort();
    this.#end.resolve(end);
  }

  #onMarker(stream: OutputStream, text: string): void {
    if (text[0] === "R") {
      this.#scanners[stream] = this.#outputScanner(stream);
      this.#started(text.slice(1));
    } else if (text[0] === "E") {
      const code = Number(text.slice(1));
      this.#codes.set(stream, code);
      if (stream === "stdout" && !this.#hasStarted) {
        // A shell that does not report a start could not fork, unless a signal ended the child at once.
        if (signalOf(code) === 0) this.fail(noProcesses());
        this.#started(undefined);
      }
      this.#scanners[stream] = this.afterEnd();
      if (this.#codes.size === 2) this.finish({ kind: "exited", code: this.#codes.get("stdout") ?? -1 });
    } else {
      this.#scanners[stream] = undefined;
      this.onLastMarker(stream, text);
    }
  }

  #started(leader: string | undefined): void {
    this.#hasStarted = true;
    clearTimeout(this.#startTimer);
    this.#start.resolve();
    this.onStart(leader);
    const { limit, onLate } = this.request;
    // Without a leader it has already ended.
    if (leader !== undefined && limit?.aborted) onLate?.(this);
  }

  async #askEngine(): Promise<void> {
    const { spawned } = this;
    if (this.#hasEnded || spawned === undefined) return;
    this.#asking ??= new AbortController();
    const onEnd = (): void => {
      // The markers may come after a lot of unwanted output.
      if (this.#trickles) this.resume();
    };
    const output = { isOver: () => this.#streamsOver, isPaused: () => this.#paused };
    const end = await endFromEngine(spawned, output, this.#asking.signal, { onEnd });
    if (end === undefined) return;
    this.#flush();
    this.onEngineEnd(end);
  }

  #flush(): void {
    this.#scanners.stdout?.flush();
    this.#scanners.stderr?.flush();
  }

  #startScanner(): MarkerScanner {
    return new MarkerScanner(this.nonceBytes, (chunk) => this.beforeStart(chunk));
  }

  #outputScanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.nonceBytes, (chunk) => this.#output(stream, chunk));
  }
}

/** The state of a job's output. */
interface OutputState {
  isOver(): boolean;
  isPaused(): boolean;
}

/**
 * Asks the engine how the shell around a job ended, for the case that no marker reports it because the shell was killed
 * or the connection broke. Undefined if a signal is aborted meanwhile.
 * @param within limits how long the engine may take. Default: `signal`.
 * @param onEnd called when the shell has ended and its markers may still be on their way.
 */
export async function endFromEngine(
  spawned: SpawnedProcess,
  output: OutputState,
  signal: AbortSignal,
  { within = signal, onEnd = (): void => {} }: { within?: AbortSignal; onEnd?: () => void } = {},
): Promise<JobEnd | undefined> {
  try {
    const code = await spawned.wait(within);
    onEnd();
    await untilRead(output, signal);
    return signal.aborted ? undefined : { kind: "exited", code };
  } catch (cause) {
    if (within.aborted) return undefined;
    if (cause instanceof BerthError) return { kind: "lost", error: cause };
    return {
      kind: "lost",
      error: new BerthError("ENGINE_UNAVAILABLE", "The engine lost the process.", { cause }),
    };
  }
}

/** Waits until what a process has written was read, or nothing more can be expected. */
async function untilRead(output: OutputState, signal: AbortSignal): Promise<void> {
  for (let pauses = 0; pauses < LATE_OUTPUT_PAUSES && !output.isOver() && !signal.aborted; ) {
    await rest(LATE_OUTPUT_PAUSE_MS, signal);
    // Runs after the poll for I/O, which reads what is there.
    await setImmediate();
    if (!output.isPaused()) pauses++;
  }
}
