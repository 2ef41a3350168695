import { abortError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { Engine, OutputSink, SpawnedProcess } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { ShellGoneError, shellGone } from "./errors.ts";
import type { Job, JobOutput, JobRequest, LeaderId } from "./job.ts";
import { PlainJob } from "./plain-job.ts";
import { PRESTARTED_SHELL, parseLeader, prestartedJobText } from "./script.ts";

/** How long a sandbox keeps a prestarted shell without a job that reads stdin. */
const IDLE_MS = 60_000;

/** Delay before the next shell is opened: the sandbox may exist only for this one job. */
const REOPEN_DELAY_MS = 30;

/**
 * Keeps one {@link PrestartedShell} ready in a sandbox, but only after the first job that needed one: most sandboxes
 * never do.
 */
export class PrestartedShells {
  readonly #engine: Engine;
  readonly #sandbox: LeasedSandbox;
  readonly #logger: Logger;
  readonly #closing = new AbortController();
  #ready: PrestartedShell | undefined;
  #opening = false;
  #idleTimer: NodeJS.Timeout | undefined;
  #reopenTimer: NodeJS.Timeout | undefined;

  constructor(engine: Engine, sandbox: LeasedSandbox, logger: Logger) {
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#logger = logger;
  }

  /** Opens a shell before the first job that needs one. */
  prepare(): void {
    this.#open();
  }

  /** Returns the ready shell, if there is one. In any case it opens another for the next job. */
  take(): PrestartedShell | undefined {
    const shell = this.#ready?.alive ? this.#ready : undefined;
    this.#ready = undefined;
    clearTimeout(this.#reopenTimer);
    if (shell === undefined) this.#open();
    else this.#reopenTimer = setTimeout(() => this.#open(), REOPEN_DELAY_MS).unref();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#retire(), IDLE_MS).unref();
    return shell;
  }

  /** Call this when the sandbox has ended. */
  close(): void {
    this.#closing.abort();
    clearTimeout(this.#idleTimer);
    clearTimeout(this.#reopenTimer);
    this.#retire();
  }

  #open(): void {
    if (this.#opening || this.#closing.signal.aborted) return;
    this.#opening = true;
    PrestartedShell.open(this.#engine, this.#sandbox, this.#closing.signal)
      .then((shell) => {
        if (this.#closing.signal.aborted) shell.retire();
        else this.#ready = shell;
      })
      .catch((error: unknown) => {
        if (this.#closing.signal.aborted) return;
        this.#logger.debug(
          { sandboxId: this.#sandbox.sandboxId, err: error },
          "cannot open a prestarted shell",
        );
      })
      .finally(() => {
        this.#opening = false;
      });
  }

  #retire(): void {
    this.#ready?.retire();
    this.#ready = undefined;
  }
}

const OPEN_TIMEOUT_MS = 15_000;

/** Longer than what such a shell reports when it is ready. */
const MAX_READY = 64;

/** A shell opened in advance for one job that reads stdin. The shell's stdin becomes the job's. */
export class PrestartedShell implements LeaderId {
  readonly #spawned: SpawnedProcess;
  readonly pid: number;
  readonly startTime: string;
  #job: PlainJob | undefined;
  #ended: { readonly error: Error | undefined } | undefined;

  private constructor(spawned: SpawnedProcess, leader: LeaderId) {
    this.#spawned = spawned;
    this.pid = leader.pid;
    this.startTime = leader.startTime;
  }

  /** Opens a shell; resolves when it waits for its job. Fails if that takes longer than `timeoutMs`. */
  static async open(
    engine: Engine,
    sandbox: LeasedSandbox,
    signal: AbortSignal,
    timeoutMs = OPEN_TIMEOUT_MS,
  ): Promise<PrestartedShell> {
    const ready = Promise.withResolvers<void>();
    ready.promise.catch(() => {});
    let output = "";
    let shell: PrestartedShell | undefined;
    const sink: OutputSink = {
      data: (stream, chunk) => {
        if (shell !== undefined) return shell.#job?.sink.data(stream, chunk);
        output = (output + chunk.toString("latin1")).slice(0, MAX_READY);
        if (output.includes(";")) ready.resolve();
      },
      end: (error) => {
        ready.reject(shellGone("", error));
        if (shell !== undefined) shell.#end(error);
      },
    };
    const request = { argv: ["/bin/sh", "-c", PRESTARTED_SHELL], user: sandbox.user, stdin: true };
    const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const onAbort = (): void => ready.reject(abortError(limit));
    limit.addEventListener("abort", onAbort, { once: true });
    const spawned = await engine.spawn(sandbox.ref, request, sink, limit);
    try {
      await ready.promise;
    } catch (error) {
      spawned.close();
      throw error;
    } finally {
      limit.removeEventListener("abort", onAbort);
    }
    shell = new PrestartedShell(spawned, parseLeader(output.slice(1, output.indexOf(";"))));
    return shell;
  }

  /** Whether it can still be given a job. */
  get alive(): boolean {
    return this.#ended === undefined;
  }

  /** Runs its one job; undefined if the shell ended before it started the job. */
  async run(request: JobRequest, output: JobOutput): Promise<Job | undefined> {
    const job = new PlainJob(request, output, this.startTime);
    this.#job = job;
    if (this.#ended !== undefined) job.sink.end(this.#ended.error);
    try {
      await job.begin(this.#spawned, prestartedJobText(request, job.nonce));
      return job;
    } catch (error) {
      if (error instanceof ShellGoneError) return undefined;
      throw error;
    }
  }

  /** Detaches from a shell that gets no job. It ends by itself, unless it is kept from that. */
  retire(): void {
    this.#spawned.close();
  }

  #end(error: Error | undefined): void {
    this.#ended = { error };
    this.#job?.sink.end(error);
  }
}
