import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../core/errors.ts";
import type { LeasedSandbox } from "../core/sandbox/lease.ts";
import type { ProcessControl } from "./control.ts";
import type { Job, JobEnd, LeaderId } from "./job.ts";

/** How often it is asked whether it still runs. */
const LOOK_INTERVAL_MS = 1_000;

/**
 * A job that an earlier run of the service started. Its pipes went with that:
 * what it writes is lost, nothing can be written to it, and how it ends cannot
 * be learnt. That it runs can, and it can be signaled and ended: it is the
 * process of its pid for as long as that has its start time.
 */
export class FoundJob implements Job {
  readonly pid: number;
  readonly startTime: string;
  readonly unsure = true;
  /** Resolves when it has been looked for once. */
  readonly looked: Promise<void>;
  readonly #end = Promise.withResolvers<JobEnd>();
  readonly #closed = new AbortController();

  constructor({ pid, startTime }: LeaderId, sandbox: LeasedSandbox, user: string, control: ProcessControl) {
    this.pid = pid;
    this.startTime = startTime;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.looked = promise;
    void this.#watch(sandbox, user, control, resolve);
  }

  get end(): Promise<JobEnd> {
    return this.#end.promise;
  }

  pause(): void {}

  resume(): void {}

  trickle(): void {}

  async writeStdin(): Promise<void> {
    throw new BerthError(
      "PROCESS_STATE",
      "The service was restarted while the process ran: its stdin is lost.",
    );
  }

  closeStdin(): void {}

  async resize(): Promise<void> {
    throw new BerthError(
      "PROCESS_STATE",
      "The service was restarted while the process ran: its terminal is lost.",
    );
  }

  hold(): (() => void) | undefined {
    return this.#closed.signal.aborted ? undefined : () => {};
  }

  close(): void {
    this.#finish("The service lost it.");
  }

  async #watch(
    sandbox: LeasedSandbox,
    user: string,
    control: ProcessControl,
    looked: () => void,
  ): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      // While nobody answers it counts as running: the sandbox's end is told by others.
      const runs = await control.signal(sandbox, user, this, 0).catch(() => true);
      if (!runs) this.#finish("The service was restarted while it ran: how it ended is not known.");
      looked();
      await sleep(LOOK_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  #finish(message: string): void {
    this.#closed.abort();
    this.#end.resolve({ kind: "lost", error: new BerthError("ENGINE_UNAVAILABLE", message) });
  }
}
