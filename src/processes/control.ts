import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../base/errors.ts";
import type { Engine, OutsideControl } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { Job, Leader } from "./shell/job.ts";
import { killCommand, OOM_KILLS_COMMAND, signalCommand, terminateCommand } from "./shell/script.ts";

/** Probes a sandbox with the builtins of a shell inside it. */
export interface Shells {
  /**
   * Runs `probe`, which may run several commands and returns what it makes of their answers.
   * @param within aborts the wait for answers. Default: never.
   * @throws `ENGINE_UNAVAILABLE` when no shell answers, which says nothing about
   * the sandbox; `SANDBOX_TERMINATED` when the engine reports that it has ended.
   */
  ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    probe: (ask: (command: string) => Promise<string>) => Promise<T>,
    within?: AbortSignal,
  ): Promise<T>;
}

/** What {@link ProcessControl} is made of. */
export interface ControlParts {
  readonly shells: Shells;
  readonly engine: Pick<Engine, "outside">;
  /**
   * Ends a sandbox whose processes cannot be ended, for the given reason: with `aloneForMs` only where for so long no
   * other operation ran in it, whose end could free it. Returns whether that has started.
   */
  readonly giveUp: (sandbox: LeasedSandbox, why: string, aloneForMs?: number) => boolean;
}

/** How long the engine may take to show a sandbox's processes. */
const SHOW_MS = 1_000;
/** How long shells may take, beyond the grace, to end a tree that is not seen from outside. */
const INSIDE_KILL_MS = 800;
/** How long they may take in all, however short the grace: the first of a user may have to start. */
const INSIDE_ALL_MS = 2_800;
/** How long a shell may take to count the kernel's kills. */
const COUNT_MS = 1_000;

/**
 * Acts on the processes of a sandbox: from outside it where the engine can, else
 * through shells inside, with the rights of the user they run as.
 */
export class ProcessControl {
  readonly #parts: ControlParts;
  /** Out-of-memory kills that each sandbox's control group had counted when last asked, by ref. 0 at its start. */
  readonly #oomKillsSeen = new Map<string, number>();

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
   * Ends a job's whole process tree: SIGTERM, then SIGKILL when `graceMs` has
   * passed or the job has ended. Returns when nothing of it is left, a second
   * after the grace at the latest. If that fails, the sandbox is ended.
   * @throws `ENGINE_UNAVAILABLE` when it failed.
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
      // A paused sandbox ends nothing, and one that has ended needs no end.
      const isOwn = error instanceof BerthError && /^SANDBOX_(?!LIMIT)/.test(error.reason);
      const why = "Its processes could not be ended: code in it blocks every operation.";
      if (!isOwn) this.#parts.giveUp(sandbox, why);
      throw error;
    } finally {
      grace.abort();
    }
  }

  /**
   * Whether the kernel killed a process of the sandbox for want of memory since
   * the last call, as its control group counts. False where the sandbox shows no
   * such count, undefined where it is ending or none of its shells answers.
   */
  async newOomKills(sandbox: LeasedSandbox): Promise<boolean | undefined> {
    const outside = await this.outside(sandbox);
    if (await outside?.isEnding()) return undefined;
    const count = outside?.oomKills() ?? (await this.#askOomKills(sandbox));
    if (count === undefined) return undefined;
    if (Number.isNaN(count)) return false;
    const seen = this.#oomKillsSeen.get(sandbox.ref) ?? 0;
    this.#oomKillsSeen.set(sandbox.ref, count);
    return count > seen;
  }

  /** The sandbox's processes from outside; undefined where they cannot be seen from there, or not in time. */
  async outside({ ref }: LeasedSandbox): Promise<OutsideControl | undefined> {
    return this.#parts.engine.outside(ref, AbortSignal.timeout(SHOW_MS)).catch(() => undefined);
  }

  /** Forgets a sandbox that has ended. */
  forget(ref: string): void {
    this.#oomKillsSeen.delete(ref);
  }

  #killFromInside(
    sandbox: LeasedSandbox,
    user: string,
    job: Leader & Pick<Job, "end">,
    graceMs: number,
    over: Promise<unknown>,
  ): Promise<void> {
    return this.#parts.shells.ask(
      sandbox,
      user,
      async (ask) => {
        if ((await ask(terminateCommand(job))) === "n") return;
        await over;
        if ((await ask(killCommand(job.pid))) === "y") return;
        throw new BerthError("ENGINE_UNAVAILABLE", "Some processes of the tree did not end.");
      },
      AbortSignal.timeout(Math.max(Math.ceil(graceMs + INSIDE_KILL_MS), INSIDE_ALL_MS)),
    );
  }

  /** Undefined where no shell answers, NaN where it sees no count. */
  #askOomKills(sandbox: LeasedSandbox): Promise<number | undefined> {
    const { shells } = this.#parts;
    const within = AbortSignal.timeout(COUNT_MS);
    return shells
      .ask(sandbox, sandbox.user, (ask) => ask(OOM_KILLS_COMMAND), within)
      .then((answer) => Number.parseInt(answer, 10))
      .catch(() => undefined);
  }
}
