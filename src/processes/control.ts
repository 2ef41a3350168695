import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../base/errors.ts";
import { Turns } from "../base/turns.ts";
import type { Engine, OutsideControl } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import { OomKills } from "./oom-kills.ts";
import type { Job, Leader } from "./shell/job.ts";
import { killCommand, OOM_KILLS_COMMAND, signalCommand, terminateCommand } from "./shell/script.ts";

/** Probes a sandbox with shell builtins, through a shell inside it. */
export interface Shells {
  /**
   * Runs `probe`, which may run several commands, and returns its result.
   * @param within aborts the wait for answers. Default: never.
   * @throws `ENGINE_UNAVAILABLE` when no shell answers, which proves nothing about the sandbox; `SANDBOX_TERMINATED`
   * when the engine reports that it has ended.
   */
  ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    probe: (ask: (command: string) => Promise<string>) => Promise<T>,
    within?: AbortSignal,
  ): Promise<T>;
}

/** What {@link ProcessControl} needs. */
export interface ControlParts {
  readonly shells: Shells;
  readonly engine: Pick<Engine, "outside">;
  /**
   * Ends a sandbox whose processes cannot be ended. `why` is the reason to report. With `aloneForMs`, only if no other
   * operation has run in it for that long: the end of one could unblock the sandbox. Returns whether it is being ended.
   */
  readonly giveUp: (sandbox: LeasedSandbox, why: string, aloneForMs?: number) => boolean;
}

/** How long the engine may take to return its control of a sandbox's processes. */
const SHOW_MS = 1_000;
/** How long shells may take, beyond the grace, to end a tree that is not visible from outside. */
const INSIDE_KILL_MS = 800;
/** The least total time for that, even if the grace is short: a user's first shell may have to start. */
const INSIDE_ALL_MS = 2_800;
/**
 * The same for a job of an earlier run of the service. A restart may end all of those at once, each through a shell that
 * has to start first: that it takes long says nothing about the code in the sandbox.
 */
const RECOVERED_KILL_MS = 30_000;
/** How many of those are ended at once. Their time counts from their turn. */
const RECOVERED_AT_ONCE = 16;
/** How long a shell may take to report the number of OOM kills: a new one may have to start on a busy machine. */
const COUNT_MS = 5_000;

/**
 * Acts on the processes of a sandbox, from outside it if the engine can, else through shells inside it, with the
 * permissions of the user they run as.
 */
export class ProcessControl {
  readonly #parts: ControlParts;
  readonly #oomKills = new Map<string, OomKills>();
  readonly #recovered = new Turns(RECOVERED_AT_ONCE);

  constructor(parts: ControlParts) {
    this.#parts = parts;
  }

  /** Sends a signal to a job's process group. Returns whether there was one. */
  async signal(sandbox: LeasedSandbox, user: string, leader: Leader, signal: number): Promise<boolean> {
    const outside = await this.outside(sandbox);
    if (outside === undefined) {
      const { shells } = this.#parts;
      return shells.ask(sandbox, user, async (ask) => (await ask(signalCommand(leader, signal))) === "y");
    }
    if (leader.unsure && (await outside.stateOf(leader)) === undefined) return false;
    return outside.signalGroup(leader, signal);
  }

  /**
   * Ends a job's whole process tree: SIGTERM, then SIGKILL when `graceMs` has passed or the job has ended. Returns when
   * no process of it is left, at the latest a second after the grace; for a job of an earlier run that is not visible
   * from outside, half a minute after its turn has come. If that fails, it ends the sandbox.
   * @throws `ENGINE_UNAVAILABLE` if it failed.
   */
  async killTree(
    sandbox: LeasedSandbox,
    user: string,
    job: Leader & Pick<Job, "end">,
    graceMs: number,
  ): Promise<void> {
    const grace = new AbortController();
    const graceOver = sleep(graceMs, undefined, { signal: grace.signal, ref: false }).catch(() => {});
    const over = Promise.race([job.end, graceOver]);
    try {
      const outside = await this.outside(sandbox);
      if (outside === undefined) await this.#killFromInside(sandbox, user, job, graceMs, over);
      else if (!job.unsure || (await outside.stateOf(job)) !== undefined) {
        const tree = await outside.terminateTree(job);
        await over;
        await tree.kill();
      }
    } catch (error) {
      // In a paused sandbox nothing can end, and an ended one need not be ended.
      const isOwn = error instanceof BerthError && /^SANDBOX_(?!LIMIT)/.test(error.reason);
      const why = "Its processes could not be ended: code in it blocks every operation.";
      if (!isOwn) this.#parts.giveUp(sandbox, why);
      throw error;
    } finally {
      grace.abort();
    }
  }

  /**
   * Takes over a sandbox of an earlier run of the service: its OOM kills so far explain no later end. If they cannot be
   * counted now, those of the first count do not.
   */
  async recover(sandbox: LeasedSandbox): Promise<void> {
    this.#oomKills.set(sandbox.ref, new OomKills(Number.POSITIVE_INFINITY));
    await this.newOomKills(sandbox);
  }

  /**
   * Whether the kernel has OOM-killed a process of the sandbox since the last call, according to its control group.
   * False if the sandbox has no such count; undefined if it is ending or none of its shells answers.
   */
  async newOomKills(sandbox: LeasedSandbox): Promise<boolean | undefined> {
    const count = await this.#countOomKills(sandbox);
    return count === undefined ? undefined : this.#oomKillsOf(sandbox).takeAll(count);
  }

  /**
   * Like {@link newOomKills}, for a process that SIGKILL has ended. Takes only one kill into account, because the same
   * shortage may have ended others, whose ends are not reported yet.
   * @param before the number of {@link oomKills} before the process started; 0 if that is unknown.
   */
  async wasOomKilled(sandbox: LeasedSandbox, before: number): Promise<boolean | undefined> {
    const count = await this.#countOomKills(sandbox);
    return count === undefined ? undefined : this.#oomKillsOf(sandbox).takeOne(count, before);
  }

  /**
   * The number of OOM kills in a sandbox, as of at most a moment ago: each start of a process asks for it. Undefined if it
   * cannot be seen from outside.
   */
  oomKills(sandbox: LeasedSandbox): Promise<number | undefined> {
    return this.#oomKillsOf(sandbox).countAtStart(() =>
      this.#parts.engine.outside(sandbox.ref).then(
        (outside) => outside?.oomKills(),
        () => undefined,
      ),
    );
  }

  /** Whether a sandbox is seen to be ending from outside. False if that cannot be seen. */
  async isEnding(sandbox: LeasedSandbox): Promise<boolean> {
    const outside = await this.outside(sandbox);
    return (await outside?.isEnding().catch(() => false)) ?? false;
  }

  /** Controls the sandbox's processes from outside; undefined if that is impossible or takes too long. */
  async outside({ ref }: LeasedSandbox): Promise<OutsideControl | undefined> {
    return this.#parts.engine.outside(ref, AbortSignal.timeout(SHOW_MS)).catch(() => undefined);
  }

  /** Forgets a sandbox that has ended. */
  forget(ref: string): void {
    this.#oomKills.delete(ref);
  }

  #killFromInside(
    sandbox: LeasedSandbox,
    user: string,
    job: Leader & Pick<Job, "end">,
    graceMs: number,
    over: Promise<unknown>,
  ): Promise<void> {
    const kill = (leastMs: number): Promise<void> =>
      this.#parts.shells.ask(
        sandbox,
        user,
        async (ask) => {
          if ((await ask(terminateCommand(job))) === "n") return;
          await over;
          if ((await ask(killCommand(job.pid))) === "y") return;
          throw new BerthError("ENGINE_UNAVAILABLE", "Some processes of the tree did not end.");
        },
        AbortSignal.timeout(Math.max(Math.ceil(graceMs + INSIDE_KILL_MS), leastMs)),
      );
    return job.unsure ? this.#recovered.run(() => kill(RECOVERED_KILL_MS)) : kill(INSIDE_ALL_MS);
  }

  #oomKillsOf({ ref }: LeasedSandbox): OomKills {
    const kills = this.#oomKills.get(ref) ?? new OomKills();
    this.#oomKills.set(ref, kills);
    return kills;
  }

  /** Undefined if it is ending or no shell answers, NaN if there is no count. */
  async #countOomKills(sandbox: LeasedSandbox): Promise<number | undefined> {
    const outside = await this.outside(sandbox);
    if (await outside?.isEnding()) return undefined;
    return outside?.oomKills() ?? this.#askOomKills(sandbox);
  }

  /** Asks a shell for the number of OOM kills. Undefined if no shell answers, NaN if there is no count. */
  #askOomKills(sandbox: LeasedSandbox): Promise<number | undefined> {
    const { shells } = this.#parts;
    const within = AbortSignal.timeout(COUNT_MS);
    return shells
      .ask(sandbox, sandbox.user, (ask) => ask(OOM_KILLS_COMMAND), within)
      .then((answer) => Number.parseInt(answer, 10))
      .catch(() => undefined);
  }
}
