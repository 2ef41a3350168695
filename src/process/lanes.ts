import type { Engine } from "../core/ports/engine.ts";
import type { Logger } from "../core/ports/logger.ts";
import type { LeasedSandbox } from "../core/sandbox/lease.ts";
import { POOL_OWNER } from "../core/sandbox/warm-pool.ts";
import type { Shells } from "./control.ts";
import type { Job, JobOutput, JobRequest, JobRunner } from "./job.ts";
import { workingDirMissing } from "./job-bounds.ts";
import { Lane } from "./lane.ts";
import { LaneJob } from "./lane-job.ts";
import { LanePool, type LanePoolSettings } from "./lane-pool.ts";
import { signalCommand } from "./lane-script.ts";
import { jobText } from "./lane-text.ts";
import { WaitingShells } from "./waiting-shells.ts";

/** What is longer goes the plain way: shells read long commands slowly. */
const LONGEST_TEXT = 32 * 1024;
const SIGKILL = 9;

/** What is kept ready in one sandbox. */
interface ReadyShells {
  readonly lanes: LanePool;
  readonly forStdin: WaitingShells;
}

/**
 * The shells of all sandboxes: runs jobs in them, and answers questions about
 * what happens inside. What they cannot do (a terminal, another user) and what
 * finds none ready is run the plain way.
 */
export class Lanes implements JobRunner, Shells {
  readonly #engine: Engine;
  readonly #plain: JobRunner;
  readonly #settings: LanePoolSettings;
  readonly #logger: Logger;
  readonly #ready = new Map<string, ReadyShells>();

  constructor(engine: Engine, plain: JobRunner, settings: LanePoolSettings, logger: Logger) {
    this.#engine = engine;
    this.#plain = plain;
    this.#settings = settings;
    this.#logger = logger;
  }

  /** Opens lanes for a sandbox that has become ready, ahead of need. */
  open(sandbox: LeasedSandbox): void {
    if (this.#ready.has(sandbox.ref)) return;
    const ready = {
      lanes: new LanePool(this.#engine, sandbox, this.#settings, this.#logger),
      forStdin: new WaitingShells(this.#engine, sandbox, this.#logger),
    };
    this.#ready.set(sandbox.ref, ready);
    // Whoever claims a sandbox that waits may want an interpreter at once.
    if (sandbox.owner === POOL_OWNER) ready.forStdin.prepare();
  }

  /** Lets go of the lanes of a sandbox that ends. */
  close(ref: string): void {
    const ready = this.#ready.get(ref);
    this.#ready.delete(ref);
    ready?.lanes.close();
    ready?.forStdin.close();
  }

  /** Lets go of the lanes of every sandbox. The sandboxes stay. */
  closeAll(): void {
    for (const ref of [...this.#ready.keys()]) this.close(ref);
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    const ready = this.#ready.get(sandbox.ref);
    const fits = request.terminal === undefined && request.user === sandbox.user && isShort(request);
    const job = ready && fits && (await this.#startIn(ready, request, output, signal));
    return job || this.#plain.start(sandbox, request, output, signal);
  }

  /** Starts a job in a shell that is ready; undefined when it is to be started another way. */
  async #startIn(
    ready: ReadyShells,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job | undefined> {
    if (request.stdin) return ready.forStdin.take()?.run(request, output);
    const lane = await ready.lanes.take(signal);
    if (lane === undefined) return undefined;
    const job = LaneJob.run(lane, jobText(request), output);
    switch (await job.started) {
      case "started":
        return job;
      case "no-directory":
        throw workingDirMissing(request);
      case "lane-gone":
        return undefined;
    }
  }

  /**
   * Has a shell of the given user answer questions: a lane that is ready, else
   * one opened for it. A ready one may have been killed or stopped from within
   * the sandbox; then a new one is asked from the beginning.
   */
  async ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    questions: (ask: (command: string) => Promise<string>) => Promise<T>,
  ): Promise<T> {
    const pool = this.#ready.get(sandbox.ref)?.lanes;
    const ready = user === sandbox.user ? pool?.takeIdle() : undefined;
    if (ready !== undefined) {
      try {
        return await questions((command) => ready.ask(command));
      } catch (error) {
        if (ready.state !== "dead") throw error;
      } finally {
        pool?.giveBack(ready);
      }
    }
    const nobody = { freed: () => {}, parked: () => {}, died: () => {} };
    const lane = await Lane.open(this.#engine, sandbox, user, nobody, new AbortController().signal);
    try {
      // One that was stopped is not to do later what it was asked in vain.
      if (ready !== undefined) await lane.ask(signalCommand(ready, SIGKILL));
      return await questions((command) => lane.ask(command));
    } finally {
      lane.retire();
    }
  }
}

function isShort({ argv, env }: JobRequest): boolean {
  let length = 0;
  for (const arg of argv) length += arg.length;
  for (const name in env) length += name.length + (env[name]?.length ?? 0);
  return length <= LONGEST_TEXT;
}
