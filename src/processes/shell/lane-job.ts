import { BerthError } from "../../base/errors.ts";
import { MarkerScanner } from "../../base/markers.ts";
import type { OutputStream } from "../../engine/port.ts";
import { ShellGoneError, workingDirMissing } from "./errors.ts";
import type { JobEnd, JobOutput, JobRequest } from "./job.ts";
import type { Lane, LaneTask } from "./lane.ts";
import { jobText } from "./script.ts";
import { ASK_ENGINE_AFTER_MS, ShellJob } from "./shell-job.ts";

/** A job in a lane: a child of the lane's shell. The shell reports afterwards whether the job left anything behind. */
export class LaneJob extends ShellJob implements LaneTask {
  readonly pid: number;
  readonly startTime: string;
  readonly #lane: Lane;
  readonly #verdicts = new Map<OutputStream, string>();
  #slowed = false;
  #holds = 0;
  #verdict: "clean" | "dirty" | undefined;

  private constructor(lane: Lane, request: JobRequest, output: JobOutput) {
    super(request, output);
    this.#lane = lane;
    this.spawned = lane.spawned;
    this.pid = lane.pid;
    this.startTime = lane.startTime;
  }

  /** Starts a job in an idle lane. `started` rejects with {@link ShellGoneError} if nothing ran. */
  static run(lane: Lane, request: JobRequest, output: JobOutput): LaneJob {
    const job = new LaneJob(lane, request, output);
    job.limitStart();
    lane.give(job, jobText(request, job.nonce, lane.undumpable));
    return job;
  }

  override async writeStdin(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process was started without stdin.");
  }

  override closeStdin(): void {}

  override async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process has no terminal.");
  }

  hold(): (() => void) | undefined {
    if (this.hasEnded) return undefined;
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

  override close(): void {
    if (this.hasEnded) return;
    super.close();
    this.#lane.discard();
  }

  data(stream: OutputStream, chunk: Buffer): void {
    if (this.#verdicts.has(stream)) return;
    this.take(stream, chunk);
    // If the verdict did not come together with the end, the output before it comes from something left behind.
    if (this.hasEnded && this.#verdicts.size < 2 && !this.#slowed) {
      this.#slowed = true;
      this.#lane.spawned.trickle();
    }
  }

  died(lost: Error | undefined): void {
    if (this.hasEnded) return;
    if (!this.hasStarted && lost === undefined) {
      const error = new ShellGoneError("");
      this.fail(error);
      this.finish({ kind: "lost", error });
      return;
    }
    const message = "The connection to the sandbox broke; whether the command ran is not known.";
    this.fail(new BerthError("ENGINE_UNAVAILABLE", message, { cause: lost }));
    this.streamsOver();
  }

  protected onStart(): void {
    this.watchEnd(ASK_ENGINE_AFTER_MS);
  }

  protected override afterEnd(): MarkerScanner {
    // Drop what comes before the verdict: it comes from something that the job left behind.
    return new MarkerScanner(this.nonceBytes, () => {});
  }

  protected onLastMarker(stream: OutputStream, text: string): void {
    this.#verdicts.set(stream, text);
    if (this.#verdicts.size < 2) return;
    this.#verdict = this.#verdicts.get("stdout") === "C" || !this.hasExitCode ? "clean" : "dirty";
    if (!this.hasExitCode) {
      const error = workingDirMissing(this.request.workingDir);
      this.fail(error);
      this.finish({ kind: "lost", error });
    }
    this.#settleLane();
  }

  protected override onEngineEnd(end: JobEnd): void {
    super.onEngineEnd(end);
    this.#lane.discard();
  }

  /** Gives the lane back once its state is known and nobody needs the pid for this job any more. */
  #settleLane(): void {
    if (this.#holds > 0 || this.#verdict === undefined) return;
    if (this.#verdict === "clean") this.#lane.release();
    else this.#lane.park();
    this.#verdict = undefined;
  }
}
