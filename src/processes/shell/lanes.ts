import { stayOpen, within } from "../../base/async.ts";
import type { Logger } from "../../base/logger.ts";
import { Turns } from "../../base/turns.ts";
import type { Engine, OutsideControl } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { POOL_OWNER } from "../../sandboxes/warm-pool.ts";
import type { ControlParts, Shells } from "../control.ts";
import { ShellGoneError } from "./errors.ts";
import type { Job, JobOutput, JobRequest, JobRunner, LeaderId } from "./job.ts";
import { Lane } from "./lane.ts";
import { LaneJob } from "./lane-job.ts";
import { LanePool, type LanePoolSettings, TURN_MS } from "./lane-pool.ts";
import { PrestartedShells } from "./prestarted-shells.ts";
import { assertPassable, killCommand, signalCommand, terminateCommand } from "./script.ts";
import { orObstacle, type StartWatchParts, watchStart } from "./start-watch.ts";

/** Longer commands run as plain jobs, because shells read them slowly. */
const MAX_TEXT = 32 * 1024;
const SIGKILL = 9;
/** How many lanes are opened in advance at the same time: at start there may be thousands of sandboxes. */
const OPENING_AHEAD = 16;
/**
 * How many jobs of a sandbox start at the same time if no lane is idle. More starting shells would use so much of the
 * service and of all CPUs that other sandboxes had to wait.
 */
const STARTS_AT_ONCE = 8;
const READY_ANSWER_MS = 500;
/** Interval of checks of a shell that has not started its job. */
const STUCK_MS = 250;
/** How long shells may take to end a job that started too late: the sandbox is slow. */
const LATE_KILL_MS = 30_000;
const STOPPED = "Something in it stops every process that is started there, so nothing can be run in it.";

/** Runs commands in a shell, one after another, and returns a result from their answers. */
type ShellProbe<T> = (ask: (command: string) => Promise<string>) => Promise<T>;

/** The shells that are kept ready in one sandbox. */
interface ReadyShells {
  readonly lanes: LanePool;
  readonly forStdin: PrestartedShells;
  /** Queue of job starts without an idle lane. */
  readonly starts: Turns;
}

/**
 * The shells of all sandboxes. Runs jobs in them, and probes the sandboxes. Jobs that they cannot run (with a terminal,
 * as another user), or for which none is ready, run as plain jobs.
 */
export class Lanes implements JobRunner, Shells {
  readonly #engine: Engine;
  readonly #plain: JobRunner;
  readonly #settings: LanePoolSettings;
  readonly #logger: Logger;
  readonly #giveUp: ControlParts["giveUp"];
  readonly #ready = new Map<string, ReadyShells>();
  readonly #turns = new Turns(OPENING_AHEAD);

  constructor(
    engine: Engine,
    plain: JobRunner,
    settings: LanePoolSettings,
    logger: Logger,
    giveUp: ControlParts["giveUp"] = () => false,
  ) {
    this.#giveUp = giveUp;
    this.#engine = engine;
    this.#plain = plain;
    this.#settings = settings;
    this.#logger = logger;
  }

  /** Opens lanes in advance for a sandbox that has become ready. */
  open(sandbox: LeasedSandbox): void {
    if (this.#ready.has(sandbox.ref)) return;
    const ready = {
      lanes: new LanePool(this.#engine, sandbox, this.#settings, this.#logger, this.#turns),
      forStdin: new PrestartedShells(this.#engine, sandbox, this.#logger),
      starts: new Turns(STARTS_AT_ONCE),
    };
    this.#ready.set(sandbox.ref, ready);
    // A caller that claims a sandbox from the warm pool may want an interpreter at once.
    if (sandbox.owner === POOL_OWNER) ready.forStdin.prepare();
  }

  /** Discards the shells of a sandbox that ends. */
  close(ref: string): void {
    const ready = this.#ready.get(ref);
    this.#ready.delete(ref);
    ready?.lanes.close();
    ready?.forStdin.close();
  }

  /** Discards the shells of every sandbox. The sandboxes keep running. */
  closeAll(): void {
    for (const ref of [...this.#ready.keys()]) this.close(ref);
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    const short = isShort(request);
    if (!short) assertPassable(request);
    const watch: StartWatchParts = {
      outside: () => this.#outside(sandbox),
      onStopped: (seenMs) => this.#giveUp(sandbox, STOPPED, seenMs),
      timeoutMs: request.timeoutMs,
    };
    const fits = request.terminal === undefined && request.user === sandbox.user && short;
    const onLate = this.#enderOf(sandbox, request.user);
    const startNow = async (limit: AbortSignal): Promise<Job> => {
      const limited = { ...request, limit, onLate };
      const ready = this.#ready.get(sandbox.ref);
      const job = ready && fits && (await this.#startIn(sandbox, ready, limited, output, signal));
      return job || this.#plain.start(sandbox, limited, output, signal);
    };
    const start = (): Promise<Job> => watchStart(watch, startNow, signal);
    const ready = this.#ready.get(sandbox.ref);
    const isAtOnce = fits && !request.stdin && ready?.lanes.hasIdle;
    return isAtOnce || ready === undefined ? start() : inTurn(ready.starts, start, signal);
  }

  /** Starts a job in a ready shell; undefined if it must run as a plain job. */
  async #startIn(
    sandbox: LeasedSandbox,
    ready: ReadyShells,
    request: JobRequest & { readonly limit: AbortSignal },
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job | undefined> {
    const { limit } = request;
    if (request.stdin) {
      const shell = ready.forStdin.take();
      return shell && this.#unlessStuck(sandbox, shell, limit, shell.run(request, output));
    }
    const lane = ready.lanes.takeIdle() ?? (await ready.lanes.take(AbortSignal.any([signal, limit])));
    if (lane === undefined) return undefined;
    const job = LaneJob.run(lane, request, output);
    try {
      await this.#unlessStuck(sandbox, lane, limit, job.started, () => job.hold());
      return job;
    } catch (error) {
      if (error instanceof ShellGoneError) return undefined;
      throw error;
    }
  }

  /**
   * Waits until a shell has started a job. A shell that a signal has stopped is continued. If it is stopped again, it
   * is killed, so that the job starts elsewhere. It is also killed once the limit aborts, so that it does not start the
   * job later.
   * @param hold keeps the shell from getting another job while it is killed; undefined if it may already have one.
   */
  async #unlessStuck<T>(
    sandbox: LeasedSandbox,
    shell: LeaderId,
    limit: AbortSignal,
    started: Promise<T>,
    hold: () => (() => void) | undefined = () => () => {},
  ): Promise<T> {
    const fail = (error: unknown): void =>
      this.#logger.debug({ sandboxId: sandbox.sandboxId, err: error }, "a stuck shell could not be ended");
    let over = false;
    let wasStopped = false;
    const help = async (): Promise<void> => {
      const outside = await this.#outside(sandbox);
      // The stopped process may be its child, before it has started the job.
      const isStopped = (await outside?.isHeldUp(shell)) ?? false;
      if (over) return;
      if (isStopped && wasStopped) return kill();
      if (isStopped) await outside?.continueTree(shell);
      wasStopped = isStopped;
      if (!over) looking = helpLater();
    };
    const helpLater = (): NodeJS.Timeout => setTimeout(() => help().catch(fail), STUCK_MS).unref();
    let looking = helpLater();
    const kill = async (): Promise<void> => {
      const release = hold();
      if (release === undefined) return;
      try {
        await (await this.#outside(sandbox))?.killTree(shell);
      } finally {
        release();
      }
    };
    const onLimit = (): void => void kill().catch(fail);
    limit.addEventListener("abort", onLimit, { once: true });
    try {
      return await started;
    } finally {
      over = true;
      clearTimeout(looking);
      limit.removeEventListener("abort", onLimit);
    }
  }

  /** Ends a user's job that starts when nobody waits for it any more. Holds nothing of its request. */
  #enderOf(sandbox: LeasedSandbox, user: string): (job: Job) => void {
    return (job) => void this.#end(sandbox, user, job);
  }

  async #end(sandbox: LeasedSandbox, user: string, job: Job): Promise<void> {
    const release = job.hold();
    const killFromInside: ShellProbe<unknown> = async (ask) => {
      await ask(terminateCommand(job));
      return ask(killCommand(job.pid));
    };
    try {
      const outside = await this.#outside(sandbox);
      if (outside !== undefined) await outside.killTree(job);
      else await this.ask(sandbox, user, killFromInside, AbortSignal.timeout(LATE_KILL_MS));
    } catch (error) {
      const { sandboxId } = sandbox;
      this.#logger.warn({ sandboxId, err: error }, "a command that started too late could not be ended");
    } finally {
      release?.();
      job.close();
    }
  }

  #outside({ ref }: LeasedSandbox): Promise<OutsideControl | undefined> {
    return this.#engine.outside(ref).catch(() => undefined);
  }

  /**
   * Runs a probe in a shell of the given user: in a ready lane, else in one opened for it. A ready lane may have been
   * killed or stopped from within the sandbox; then the probe restarts in a new one.
   */
  async ask<T>(sandbox: LeasedSandbox, user: string, probe: ShellProbe<T>, within?: AbortSignal): Promise<T> {
    const startedAt = performance.now();
    try {
      return await this.#ask(sandbox, user, probe, within);
    } catch (error) {
      throw await orObstacle(error, () => this.#outside(sandbox), performance.now() - startedAt);
    }
  }

  async #ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    probe: ShellProbe<T>,
    within?: AbortSignal,
  ): Promise<T> {
    const pool = this.#ready.get(sandbox.ref)?.lanes;
    const ready = user === sandbox.user ? pool?.takeIdle() : undefined;
    if (ready !== undefined) {
      try {
        return await probe((command) => askSoon(ready, command, within));
      } catch (error) {
        if (ready.state !== "dead") throw error;
      } finally {
        pool?.giveBack(ready);
      }
    }
    const nobody = { freed: () => {}, parked: () => {}, died: () => {} };
    const never = new AbortController().signal;
    const lane = await Lane.open(this.#engine, sandbox, user, nobody, within ?? never);
    try {
      // Kill the shell that did not answer: it may only be stopped, and must not run the command later.
      if (ready !== undefined) await lane.ask(signalCommand(ready, SIGKILL), within);
      return await probe((command) => lane.ask(command, within));
    } finally {
      lane.discard();
    }
  }
}

/** Asks a ready shell. Gives up soon if it does not answer, to leave time to ask another. */
async function askSoon(ready: Lane, command: string, within: AbortSignal | undefined): Promise<string> {
  if (within === undefined) return ready.ask(command);
  const [answered, late] = [new AbortController(), new AbortController()];
  void stayOpen(READY_ANSWER_MS, answered.signal).then(() => late.abort());
  try {
    return await ready.ask(command, AbortSignal.any([within, late.signal]));
  } finally {
    answered.abort();
  }
}

function isShort({ argv, env }: JobRequest): boolean {
  let length = 0;
  for (const arg of argv) length += arg.length;
  for (const name in env) length += name.length + (env[name]?.length ?? 0);
  return length <= MAX_TEXT;
}

/** Starts a job when its turn has come. The turn ends soon, even if the start hangs. */
async function inTurn(turns: Turns, start: () => Promise<Job>, signal: AbortSignal): Promise<Job> {
  const started = Promise.withResolvers<Job>();
  const begin = async (): Promise<void> => {
    started.resolve(start());
    await within(started.promise, TURN_MS).catch(() => {});
  };
  await turns.run(begin, signal);
  return started.promise;
}
