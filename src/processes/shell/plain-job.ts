import { abortError, throwIfAborted } from "../../base/errors.ts";
import type { Engine, OutputStream, SpawnedProcess } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { shellGone, workingDirMissing } from "./errors.ts";
import type { Job, JobEnd, JobOutput, JobRequest, JobRunner } from "./job.ts";
import { parseLeader, plainJobCommand, type ShellText } from "./script.ts";
import { ASK_ENGINE_AFTER_MS, ShellJob } from "./shell-job.ts";

/** More text than this before the first marker is not an engine's message. */
const MAX_PREAMBLE = 16 * 1024;

/** A job in its own shell, which ends with it. */
export class PlainJob extends ShellJob {
  pid = 0;
  startTime: string;
  readonly sink = {
    data: (stream: OutputStream, chunk: Buffer): void => {
      if (!this.hasEnded) this.take(stream, chunk);
    },
    end: (error?: Error): void => this.#onStreamsEnd(error),
  };
  #preamble = "";

  /** @param startTime its shell's start time; empty if the shell reports it when the job starts. */
  constructor(request: JobRequest, output: JobOutput, startTime = "") {
    super(request, output);
    this.startTime = startTime;
  }

  /**
   * Sends the shell what it waits for, and waits until the job runs.
   * @throws `ShellGoneError` if the shell ended before that.
   */
  async begin(spawned: SpawnedProcess, goAhead: ShellText): Promise<void> {
    this.spawned = spawned;
    const { limit, stdin, terminal } = this.request;
    this.limitStart();
    const onLimit = (): void => this.giveUp(limit && abortError(limit));
    limit?.addEventListener("abort", onLimit, { once: true });
    if (limit?.aborted) onLimit();
    try {
      // A write fails if the shell has ended, which its streams report.
      spawned.writeStdin(Buffer.from(goAhead, "latin1")).catch(() => {});
      if (!stdin && !terminal) spawned.closeStdin();
      await this.started;
    } catch (error) {
      // A shell that has its go-ahead may still start the job, which must then be found and ended.
      if (!limit?.aborted) this.close();
      throw error;
    } finally {
      limit?.removeEventListener("abort", onLimit);
    }
    this.watchEnd(terminal ? 0 : ASK_ENGINE_AFTER_MS);
  }

  hold(): (() => void) | undefined {
    // The kernel reuses the pid of a session leader only when no process of its session is left.
    return this.hasEnded ? undefined : () => {};
  }

  protected override beforeStart(chunk: Buffer): void {
    this.#preamble += chunk.toString("utf8", 0, Math.max(0, MAX_PREAMBLE - this.#preamble.length));
  }

  protected onStart(leader: string | undefined): void {
    if (leader === undefined) return;
    const { pid, startTime } = parseLeader(leader);
    this.pid = pid;
    this.startTime ||= startTime;
  }

  protected onLastMarker(): void {
    this.fail(workingDirMissing(this.request.workingDir));
  }

  protected override finish(end: JobEnd): void {
    if (this.hasEnded) return;
    super.finish(end);
    this.spawned?.close();
  }

  #onStreamsEnd(error?: Error): void {
    if (this.hasEnded) return;
    if (this.hasStarted) this.streamsOver();
    else this.fail(shellGone(this.#preamble, error));
  }
}

/** Starts each job with a separate call to the engine. */
export class PlainRunner implements JobRunner {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    throwIfAborted(signal);
    const job = new PlainJob(request, output);
    const { goAhead, ...command } = plainJobCommand(request, job.nonce);
    const spawned = await this.#engine.spawn(
      sandbox.ref,
      {
        ...command,
        user: request.user,
        stdin: true,
        terminal: request.terminal,
        dropSignal: signal,
      },
      job.sink,
      request.limit,
    );
    await job.begin(spawned, goAhead);
    return job;
  }
}
