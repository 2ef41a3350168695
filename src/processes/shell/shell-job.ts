import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../../base/errors.ts";
import { MarkerScanner, newMarkerNonce } from "../../base/markers.ts";
import type { OutputStream, SpawnedProcess, TerminalSize } from "../../engine/port.ts";
import { signalOf } from "../record.ts";
import { noProcesses, tooSlow } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobTrace } from "./job.ts";

/** How long a shell may take to start a job. */
export const START_TIMEOUT_MS = 30_000;
/** How long bytes of a dialogue that may begin a marker wait for what follows. */
const MAX_HOLD_MS = 20;
/** A shell reports a job that ends soon; the engine is asked about longer ones only. */
export const ASK_ENGINE_AFTER_MS = 1_000;
/** How long markers may take after the engine has reported that the shell ended. */
const LATE_OUTPUT_MS = 500;

/**
 * A job with a shell around it, which marks on the job's own streams where the job starts and ends: the state machine
 * of these markers, and the engine as the second source of its end. See README.md.
 */
export abstract class ShellJob implements Job {
  abstract readonly pid: number;
  abstract readonly startTime: string;
  readonly unsure = false;
  readonly nonce = newMarkerNonce();
  protected readonly nonceBytes = Buffer.from(this.nonce, "latin1");
  protected readonly request: JobRequest;
  /** What the shell runs in; undefined until the engine has returned it. */
  protected spawned: SpawnedProcess | undefined;
  readonly #output: JobOutput;
  /** Undefined: nothing that the stream still brings is of the job or its shell. */
  readonly #scanners: Record<OutputStream, MarkerScanner | undefined>;
  readonly #codes = new Map<OutputStream, number>();
  readonly #start = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<JobEnd>();
  #startTimer: NodeJS.Timeout | undefined;
  #watchTimer: NodeJS.Timeout | undefined;
  /** Passes on what a dialogue's scanners hold. */
  #holdTimer: NodeJS.Timeout | undefined;
  /** Ends the wait for the engine's answer, once the end is known. */
  #asking: AbortController | undefined;
  #hasStarted = false;
  #hasEnded = false;
  #streamsOver = false;
  #trickles = false;

  constructor(request: JobRequest, output: JobOutput) {
    this.request = request;
    this.#output = output;
    this.#scanners = {
      stdout: this.#startScanner(),
      stderr: this.#outputScanner("stderr"),
    };
    this.#start.promise.catch(() => {});
  }

  /** Resolves when the job runs, or has run. Rejects where it does not, or that cannot be known. */
  get started(): Promise<void> {
    return this.#start.promise;
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  get trace(): JobTrace | undefined {
    const handle = this.spawned?.handle;
    // At a terminal the job takes the place of its shell.
    return handle === undefined
      ? undefined
      : { handle, nonce: this.request.terminal ? undefined : this.nonce };
  }

  pause(): void {
    this.#trickles = false;
    if (!this.#hasEnded) this.spawned?.pause();
  }

  resume(): void {
    this.#trickles = false;
    if (!this.#hasEnded) this.spawned?.resume();
  }

  trickle(): void {
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

  /** Whether the shell has reported how the job ended, on one stream at least. */
  protected get hasExitCode(): boolean {
    return this.#codes.size > 0;
  }

  /** Bounds the time until the job starts. */
  protected limitStart(): void {
    this.#startTimer = setTimeout(() => {
      this.fail(tooSlow());
      this.close();
    }, START_TIMEOUT_MS).unref();
  }

  /** The job does not start. */
  protected fail(error: unknown): void {
    this.#start.reject(error);
  }

  /** Learns of an end that no marker reports: a terminal's, or a killed shell whose pipes others hold. */
  protected watchEnd(delayMs: number): void {
    this.#watchTimer = setTimeout(() => void this.#askEngine(), delayMs).unref();
  }

  /** Takes what the shell and its job write. */
  protected take(stream: OutputStream, chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      // At a terminal no marker follows the first.
      if (this.#hasStarted && this.request.terminal) {
        this.#output(stream, rest);
        return;
      }
      const scanner = this.#scanners[stream];
      const found = scanner?.push(rest);
      if (found === undefined) {
        clearTimeout(this.#holdTimer);
        // A marker is written in one piece: what begins one and is not followed up is none. Were it one after all, the
        // engine would still report the end.
        if (scanner?.holds && this.#hasStarted && this.request.isDialogue)
          this.#holdTimer = setTimeout(() => this.#flush(), MAX_HOLD_MS).unref();
        return;
      }
      this.#onMarker(stream, found.text);
      rest = found.rest;
    }
  }

  /** No more markers can come, from a job that has started. */
  protected streamsOver(): void {
    this.#streamsOver = true;
    this.#flush();
    void this.#askEngine();
  }

  /** Takes what stdout brings before the marker of the start. */
  protected beforeStart(chunk: Buffer): void {
    this.#output("stdout", chunk);
  }

  /** The job has started. @param leader as its shell reports it; undefined where only the end was reported. */
  protected abstract onStart(leader: string | undefined): void;

  /** Scans a stream once it has brought the end; undefined: nothing of it matters any more. */
  protected afterEnd(): MarkerScanner | undefined {
    return undefined;
  }

  /** The last marker of a stream: `C` or `D`. Without an end before it, `D` reports that the directory cannot be entered. */
  protected abstract onLastMarker(stream: OutputStream, text: string): void;

  /** The shell has ended, as the engine reports. */
  protected onEngineEnd(end: JobEnd): void {
    this.finish(end);
  }

  /** The first end counts. */
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
        // A shell that reports no start could make no child, unless a signal ended that at once.
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
  }

  async #askEngine(): Promise<void> {
    const { spawned } = this;
    if (this.#hasEnded || spawned === undefined) return;
    this.#asking ??= new AbortController();
    const onEnd = (): void => {
      // The markers may come after much output that nobody wants.
      if (this.#trickles) this.resume();
    };
    const end = await endFromEngine(spawned, () => this.#streamsOver, this.#asking.signal, onEnd);
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

/**
 * Asks the engine how the shell around a job ended: where no marker reports that, because the shell was killed or the
 * connection broke. Undefined when the signal is aborted meanwhile.
 * @param onEnd called when the shell has ended and its markers may be on their way.
 */
export async function endFromEngine(
  spawned: SpawnedProcess,
  streamsOver: () => boolean,
  signal: AbortSignal,
  onEnd = (): void => {},
): Promise<JobEnd | undefined> {
  try {
    const code = await spawned.wait(signal);
    onEnd();
    if (!streamsOver()) await sleep(LATE_OUTPUT_MS, undefined, { signal, ref: false });
    return { kind: "exited", code };
  } catch (cause) {
    if (signal.aborted) return undefined;
    if (cause instanceof BerthError) return { kind: "lost", error: cause };
    return {
      kind: "lost",
      error: new BerthError("ENGINE_UNAVAILABLE", "The engine lost the process.", { cause }),
    };
  }
}
