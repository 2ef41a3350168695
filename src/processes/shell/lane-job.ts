import { BerthError } from "../../base/errors.ts";
import type { OutputStream } from "../../engine/port.ts";
import { ShellGoneError } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobTrace } from "./job.ts";
import type { Lane, LaneTask } from "./lane.ts";
import { MarkerScanner, newNonce } from "./markers.ts";
import type { ShellText } from "./script.ts";
import {
  ASK_ENGINE_AFTER_MS,
  BEGIN_TIMEOUT_MS,
  endAsEngineTells,
  isChildless,
  tooSlow,
} from "./shell-job.ts";

/** What came of the wish to start a job. */
export type LaneStart =
  | "started"
  /** The working directory cannot be entered; nothing ran, the lane is free again. */
  | "no-directory"
  /** The shell could make no child; nothing ran. */
  | "no-child"
  /** The lane's shell ended before the job began; nothing ran. */
  | "lane-gone";

/** A job in a lane: a child of its shell. */
export class LaneJob implements Job, LaneTask {
  readonly pid: number;
  readonly startTime: string;
  readonly unsure = false;
  readonly #lane: Lane;
  readonly #output: JobOutput;
  readonly #nonce: string;
  readonly #scanners: Record<OutputStream, MarkerScanner>;
  readonly #start = Promise.withResolvers<LaneStart>();
  readonly #end = Promise.withResolvers<JobEnd>();
  #watchTimer: NodeJS.Timeout | undefined;
  /** Ends the wait for what the engine says, once the end is known. */
  #asking: AbortController | undefined;
  readonly #codes = new Map<OutputStream, number>();
  readonly #verdicts = new Map<OutputStream, string>();
  #beginTimer: NodeJS.Timeout | undefined;
  #started = false;
  #ended = false;
  #slowed = false;
  #holds = 0;
  #verdict: "clean" | "dirty" | undefined;

  private constructor(lane: Lane, nonce: string, output: JobOutput) {
    this.#lane = lane;
    this.pid = lane.pid;
    this.startTime = lane.startTime;
    this.#nonce = nonce;
    this.#output = output;
    this.#scanners = { stdout: this.#dataScanner("stdout"), stderr: this.#dataScanner("stderr") };
    this.#start.promise.catch(() => {});
  }

  /** Starts a job in an idle lane. */
  static run(lane: Lane, text: (nonce: string) => ShellText, output: JobOutput): LaneJob {
    const nonce = newNonce();
    const job = new LaneJob(lane, nonce, output);
    job.#beginTimer = setTimeout(() => job.#tooSlow(), BEGIN_TIMEOUT_MS).unref();
    lane.give(job, text(nonce));
    return job;
  }

  /** Resolves when it is known whether the job runs. Rejects where that cannot be known. */
  get started(): Promise<LaneStart> {
    return this.#start.promise;
  }

  get trace(): JobTrace | undefined {
    const { handle } = this.#lane.spawned;
    return handle === undefined ? undefined : { handle, nonce: this.#nonce };
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  pause(): void {
    if (!this.#ended) this.#lane.spawned.pause();
  }

  resume(): void {
    if (!this.#ended) this.#lane.spawned.resume();
  }

  trickle(): void {
    if (!this.#ended) this.#lane.spawned.trickle();
  }

  async writeStdin(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process was started without stdin.");
  }

  closeStdin(): void {}

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process has no terminal.");
  }

  hold(): (() => void) | undefined {
    if (this.#ended) return undefined;
    this.#lane.spend();
    this.#holds++;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#holds--;
      this.#settleLane();
    };
  }

  close(): void {
    if (this.#ended) return;
    this.#finish({ kind: "lost", error: new BerthError("CANCELED", "The process was let go of.") });
    this.#lane.discard();
  }

  data(stream: OutputStream, chunk: Buffer): void {
    if (this.#verdicts.has(stream)) return;
    let rest: Buffer | undefined = chunk;
    while (rest !== undefined && rest.length > 0) rest = this.#take(stream, rest);
    // What comes before a verdict that did not come along with the end is of something that it left behind.
    if (this.#ended && this.#verdicts.size < 2 && !this.#slowed) {
      this.#slowed = true;
      this.#lane.spawned.trickle();
    }
  }

  died(lost: Error | undefined): void {
    if (this.#ended) return;
    if (this.#started || lost !== undefined) {
      this.#start.reject(
        new BerthError(
          "ENGINE_UNAVAILABLE",
          "The connection to the sandbox broke; whether the command ran is not known.",
          { cause: lost },
        ),
      );
    } else {
      this.#start.resolve("lane-gone");
      this.#finish({ kind: "lost", error: new ShellGoneError("") });
      return;
    }
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    void this.#learnEnd(true);
  }

  /** Takes bytes up to the next marker, and returns what follows it. */
  #take(stream: OutputStream, bytes: Buffer): Buffer | undefined {
    const found = this.#scanners[stream].push(bytes);
    if (found === undefined) return undefined;
    const kind = found.text[0];
    if (kind === "R") {
      this.#scanners[stream] = this.#dataScanner(stream);
      this.#begin();
      return found.rest;
    }
    if (kind === "E") {
      this.#codes.set(stream, Number(found.text.slice(1)));
      if (stream === "stdout" && !this.#started) this.#beganNothing(Number(found.text.slice(1)));
      // What comes now is of something the job left behind, and nobody's output.
      this.#scanners[stream] = new MarkerScanner(this.#nonce, () => {});
      if (this.#codes.size === 2) this.#finish({ kind: "exited", code: this.#codes.get("stdout") ?? -1 });
      return found.rest;
    }
    this.#verdicts.set(stream, found.text);
    if (this.#verdicts.size === 2) this.#judge();
    return undefined;
  }

  #begin(): void {
    this.#started = true;
    clearTimeout(this.#beginTimer);
    this.#start.resolve("started");
    this.#watch();
  }

  /** An end without a beginning. */
  #beganNothing(code: number): void {
    if (isChildless(code)) this.#start.resolve("no-child");
    this.#begin();
  }

  #judge(): void {
    const verdict = this.#verdicts.get("stdout");
    // "D" without an end says that the directory could not be entered; after one, that something is left.
    const ran = this.#codes.size > 0;
    this.#verdict = verdict === "C" || !ran ? "clean" : "dirty";
    if (!ran) {
      this.#start.resolve("no-directory");
      this.#finish({ kind: "lost", error: new BerthError("INVALID_ARGUMENT", "The command did not run.") });
    }
    this.#settleLane();
  }

  /** Gives the lane back once its state is known and nobody needs its pid to be this job's. */
  #settleLane(): void {
    if (this.#holds > 0 || this.#verdict === undefined) return;
    if (this.#verdict === "clean") this.#lane.release();
    else this.#lane.park();
    this.#verdict = undefined;
  }

  /** Learns of an end that no marker tells: a killed shell whose pipes others hold. */
  #watch(): void {
    this.#watchTimer = setTimeout(() => this.#learnEnd(false), ASK_ENGINE_AFTER_MS).unref();
  }

  /** Never rejects. */
  async #learnEnd(streamsOver: boolean): Promise<void> {
    this.#asking ??= new AbortController();
    const end = await endAsEngineTells(this.#lane.spawned, () => streamsOver, this.#asking.signal);
    if (end === undefined) return;
    for (const scanner of Object.values(this.#scanners)) scanner.flush();
    this.#finish(end);
    this.#lane.discard();
  }

  #tooSlow(): void {
    this.#start.reject(tooSlow());
    this.close();
  }

  #finish(end: JobEnd): void {
    if (this.#ended) return;
    clearTimeout(this.#beginTimer);
    this.#ended = true;
    clearTimeout(this.#watchTimer);
    this.#asking?.abort();
    this.#end.resolve(end);
  }

  #dataScanner(stream: OutputStream): MarkerScanner {
    return new MarkerScanner(this.#nonce, (chunk) => this.#output(stream, chunk));
  }
}
