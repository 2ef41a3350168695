import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../core/errors.ts";
import type { LeasedSandbox } from "../core/sandbox/lease.ts";
import type { Job, Leader } from "./job.ts";
import { killCommand, OOM_KILLS_COMMAND, signalCommand, terminateCommand } from "./lane-script.ts";

/** Answers questions with the builtins of a shell inside a sandbox. */
export interface Shells {
  /**
   * @throws `ENGINE_UNAVAILABLE` when no shell answers, which says nothing of
   * the sandbox; `SANDBOX_TERMINATED` when the engine says that it has ended.
   */
  ask<T>(
    sandbox: LeasedSandbox,
    user: string,
    questions: (ask: (command: string) => Promise<string>) => Promise<T>,
  ): Promise<T>;
}

/** Acts on processes inside a sandbox, with the rights of the user they run as. */
export class ProcessControl {
  readonly #shells: Shells;
  /** Kills for want of memory that each sandbox's control group had counted when last asked, by ref. 0 at its start. */
  readonly #oomKillsSeen = new Map<string, number>();

  constructor(shells: Shells) {
    this.#shells = shells;
  }

  /** Sends a signal to a job's process group. Returns whether there was one. */
  async signal(sandbox: LeasedSandbox, user: string, leader: Leader, signal: number): Promise<boolean> {
    return this.#shells.ask(sandbox, user, async (ask) => (await ask(signalCommand(leader, signal))) === "y");
  }

  /**
   * Ends a job's whole process tree: SIGTERM, then SIGKILL when `graceMs` has
   * passed or the job's end is told. Returns when nothing of it is left.
   * @throws `ENGINE_UNAVAILABLE` when it could not be done.
   */
  async killTree(
    sandbox: LeasedSandbox,
    user: string,
    job: Leader & Pick<Job, "end">,
    graceMs: number,
  ): Promise<void> {
    await this.#shells.ask(sandbox, user, async (ask) => {
      if ((await ask(terminateCommand(job))) === "n") return;
      const timer = new AbortController();
      const grace = sleep(graceMs, undefined, { signal: timer.signal, ref: false }).catch(() => {});
      await Promise.race([job.end, grace]);
      timer.abort();
      if ((await ask(killCommand(job.pid))) === "y") return;
      throw new BerthError("ENGINE_UNAVAILABLE", "Some processes of the tree did not end.");
    });
  }

  /**
   * Whether the kernel killed in the sandbox for want of memory since the last
   * time this was asked, as its control group counts. False where the sandbox
   * shows no such count, undefined where no shell of it answers.
   */
  async newOomKills(sandbox: LeasedSandbox): Promise<boolean | undefined> {
    const answer = await this.#shells
      .ask(sandbox, sandbox.user, (ask) => ask(OOM_KILLS_COMMAND))
      .catch(() => undefined);
    if (answer === undefined) return undefined;
    const count = Number.parseInt(answer, 10);
    if (Number.isNaN(count)) return false;
    const seen = this.#oomKillsSeen.get(sandbox.ref) ?? 0;
    this.#oomKillsSeen.set(sandbox.ref, count);
    return count > seen;
  }

  /** Forgets a sandbox that has ended. */
  forget(ref: string): void {
    this.#oomKillsSeen.delete(ref);
  }
}
