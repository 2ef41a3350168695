import { rest } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import { MarkerScanner, newNonce } from "../../base/markers.ts";
import type { OutputStream, SpawnedProcess } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { ProcessControl } from "../control.ts";
import type { StdinProgress, StdinWriter } from "../stdin-writer.ts";
import { sandboxEnd } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobTrace, LeaderId } from "./job.ts";
import { endFromEngine } from "./shell-job.ts";

/** How often Berth checks whether the job still runs. */
const LOOK_INTERVAL_MS = 1_000;
/** How long the engine may take to report how the job ended. */
const ENGINE_MS = 10_000;
/** Exit codes above this name the signal that ended a process. */
const LAST_OWN_CODE = 128;

/** What is stored about a job that an earlier run of the service started. */
interface ReattachedInit {
  readonly leader: LeaderId;
  readonly trace: JobTrace | undefined;
  readonly sandbox: LeasedSandbox;
  readonly user: string;
  /** How far its stdin got; undefined: it had none. */
  readonly stdin: StdinProgress | undefined;
}

/**
 * A job that an earlier run of the service started, and whose stdin ended with that run. Its output and its end come
 * from its pipes, if they still exist; otherwise the engine may know how it ended. The pid identifies it only together
 * with the start time.
 */
export class ReattachedJob implements Job {
  readonly pid: number;
  readonly startTime: string;
  readonly trace: JobTrace | undefined;
  readonly unsure = true;
  readonly sink = {
    data: (stream: OutputStream, chunk: Buffer): void => this.#feed(stream, chunk),
    end: (): void => {
      this.#streamsOver = true;
      void this.#gone();
    },
  };
  readonly #init: ReattachedInit;
  readonly #output: JobOutput;
  readonly #scanners: Record<OutputStream, MarkerScanner>;
  readonly #codes = new Map<OutputStream, number>();
  readonly #running = Promise.withResolvers<boolean>();
  readonly #end = Promise.withResolvers<JobEnd>();
  readonly #closed = new AbortController();
  #spawned: SpawnedProcess | undefined;
  #control: ProcessControl | undefined;
  #streamsOver = false;
  #paused = false;
  #learning: Promise<void> | undefined;

  constructor(init: ReattachedInit, output: JobOutput) {
    this.#init = init;
    this.pid = init.leader.pid;
    this.startTime = init.leader.startTime;
    this.trace = init.trace;
    this.#output = output;
    this.#scanners = { stdout: this.#scanner("stdout"), stderr: this.#scanner("stderr") };
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  /** Resolves with whether the job runs, as soon as that is known. */
  get runs(): Promise<boolean> {
    return this.#running.promise;
  }

  /**
   * Starts to follow the job. @param spawned the process it runs in; undefined if the engine no longer knows that
   * process.
   */
  follow(spawned: SpawnedProcess | undefined, control: ProcessControl): void {
    this.#spawned = spawned;
    this.#control = control;
    // The unread output of its pipes may already have reported its end.
    if (this.#closed.signal.aborted) spawned?.close();
    void this.#watch(control);
  }

  pause(): void {
    this.#paused = true;
    this.#spawned?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#spawned?.resume();
  }

  trickle(): void {}

  /** Its {@link StdinWriter} knows that its stdin was cut off, and passes nothing on. */
  async writeStdin(): Promise<void> {}

  closeStdin(): void {}

  async resize(): Promise<void> {
    throw new BerthError(
      "PROCESS_STATE",
      "The service was restarted while the process ran: its terminal is lost.",
    );
  }

  hold(): (() => void) | undefined {
    return this.#closed.signal.aborted ? undefined : () => {};
  }

  close(): void {
    this.#finish(lost("The service lost it."));
  }

  #scanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.trace?.nonce ?? newNonce(), (chunk) => this.#output(stream, chunk));
  }

  #feed(stream: OutputStream, chunk: Buffer): void {
    if (this.#closed.signal.aborted || this.#codes.has(stream)) return;
    const found = this.#scanners[stream].push(chunk);
    if (found?.text[0] !== "E") return;
    this.#codes.set(stream, Number(found.text.slice(1)));
    if (this.#codes.size === 2) this.#exitedAsReported();
  }

  /** The job has ended as its shell reported. */
  #exitedAsReported(): void {
    const [first = -1] = this.#codes.values();
    this.#exited(this.#codes.get("stdout") ?? first);
  }

  #exited(code: number): void {
    const { stdin } = this.#init;
    const input = stdin?.open ? `, and input after its first ${stdin.passed} bytes` : "";
    const message = `The service was restarted while it ran: output may be missing${input}.`;
    this.#finish({ kind: "exited", code, message });
  }

  async #watch(control: ProcessControl): Promise<void> {
    const { signal } = this.#closed;
    const { sandbox, user } = this.#init;
    while (!signal.aborted) {
      // If nobody answers, the job counts as running. The end of the sandbox is reported elsewhere.
      const runs = await control.signal(sandbox, user, this, 0).catch(() => true);
      if (!runs) await this.#gone();
      this.#running.resolve(runs);
      await rest(LOOK_INTERVAL_MS, signal);
    }
  }

  /** Its shell has ended, or its pipes have. */
  #gone(): Promise<void> {
    this.#learning ??= this.#learnEnd();
    return this.#learning;
  }

  async #learnEnd(): Promise<void> {
    const { signal } = this.#closed;
    const within = AbortSignal.any([signal, AbortSignal.timeout(ENGINE_MS)]);
    const output = { isOver: () => this.#streamsOver, isPaused: () => this.#paused };
    const spawned = this.#spawned;
    const end = spawned && (await endFromEngine(spawned, output, signal, { within }));
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    if (this.#codes.size > 0) return this.#exitedAsReported();
    if (end?.kind === "exited" && this.#isOwn(end.code)) return this.#exited(end.code);
    await sandboxEnd(this.#init.sandbox, this.#closed.signal, this.#control);
    this.#finish(lost("The service was restarted while it ran: how it ended is not known."));
  }

  /**
   * Whether the exit code of the process it ran in is the job's own: a shell that was not killed may have done
   * something else since.
   */
  #isOwn(code: number): boolean {
    return this.trace?.nonce === undefined || code > LAST_OWN_CODE;
  }

  #finish(end: JobEnd): void {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    this.#running.resolve(false);
    this.#end.resolve(end);
    this.#spawned?.close();
  }
}

function lost(message: string): JobEnd {
  return { kind: "lost", error: new BerthError("ENGINE_UNAVAILABLE", message) };
}
