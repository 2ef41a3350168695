import { invalidArgument } from "../core/errors.ts";
import type { LeasedSandbox } from "../core/lease.ts";
import type { Engine } from "../core/ports/engine.ts";
import type { Logger } from "../core/ports/logger.ts";
import type { Job, JobOutput, JobRequest, JobRunner } from "./job.ts";
import { Lane } from "./lane.ts";
import { LaneJob } from "./lane-job.ts";
import { LanePool, type LanePoolSettings } from "./lane-pool.ts";
import { jobText } from "./lane-text.ts";

/** A job's text beyond this goes the plain way: shells read long commands slowly. */
const LONGEST_TEXT_BYTES = 64 * 1024;

/**
 * The lanes of all sandboxes: runs jobs in them, and answers questions about
 * what happens inside. What a lane cannot do (stdin, a terminal, another user)
 * and what finds none ready is run the plain way.
 */
export class Lanes implements JobRunner {
  readonly #engine: Engine;
  readonly #plain: JobRunner;
  readonly #settings: LanePoolSettings;
  readonly #logger: Logger;
  readonly #pools = new Map<string, LanePool>();

  constructor(engine: Engine, plain: JobRunner, settings: LanePoolSettings, logger: Logger) {
    this.#engine = engine;
    this.#plain = plain;
    this.#settings = settings;
    this.#logger = logger;
  }

  /** Opens lanes for a sandbox that has become ready, ahead of need. */
  open(sandbox: LeasedSandbox): void {
    if (this.#pools.has(sandbox.ref)) return;
    this.#pools.set(sandbox.ref, new LanePool(this.#engine, sandbox, this.#settings, this.#logger));
  }

  /** Lets go of the lanes of a sandbox that ends. */
  close(ref: string): void {
    this.#pools.get(ref)?.close();
    this.#pools.delete(ref);
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    const pool = this.#pools.get(sandbox.ref);
    const fits = !request.stdin && request.terminal === undefined && request.user === sandbox.user;
    const text = jobText(request);
    if (pool === undefined || !fits || text("").length > LONGEST_TEXT_BYTES) {
      return this.#plain.start(sandbox, request, output, signal);
    }
    const lane = await pool.take(signal);
    if (lane === undefined) return this.#plain.start(sandbox, request, output, signal);
    const job = LaneJob.run(lane, text, output);
    const onAbort = (): void => job.close();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      switch (await job.started) {
        case "started":
          return job;
        case "no-directory":
          throw invalidArgument(
            "working_dir",
            `${JSON.stringify(request.workingDir)} is no directory that the user may enter in the sandbox.`,
          );
        case "lane-gone":
          return await this.#plain.start(sandbox, request, output, signal);
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Has shells of the given user answer questions. Uses a lane that is ready, else opens one for it. */
  async ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    questions: (ask: (command: string) => Promise<string>) => Promise<T>,
  ): Promise<T> {
    const pool = this.#pools.get(sandbox.ref);
    const ready = user === sandbox.user ? pool?.takeIdle() : undefined;
    const nobody = { freed: () => {}, parked: () => {}, died: () => {} };
    const lane =
      ready ?? (await Lane.open(this.#engine, sandbox, user, nobody, new AbortController().signal));
    try {
      return await questions((command) => lane.ask(command));
    } finally {
      if (ready !== undefined) pool?.giveBack(ready);
      else lane.retire();
    }
  }
}
