import type { CancelTimer, Clock } from "../base/clock.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Run } from "./run.ts";

/** What a run that is RUNNING may run out of. */
export type RunExpiry = "LEASE_EXPIRED" | "DEADLINE";

interface Timers {
  readonly onExpire: (expiry: RunExpiry) => void;
  readonly cancelDeadline: CancelTimer;
  cancelLease: CancelTimer;
}

/** Waits for the leases and the deadlines of runs, on the monotonic clock. */
export class RunTimers {
  readonly #clock: Clock;
  readonly #time: Pick<ServiceTime, "nowMs">;
  /** By run id; only of runs that are RUNNING. */
  readonly #timers = new Map<string, Timers>();

  constructor(clock: Clock, time: Pick<ServiceTime, "nowMs">) {
    this.#clock = clock;
    this.#time = time;
  }

  /** Begins to wait for a run; `onExpire` is called once at most. */
  begin(run: Run, onExpire: (expiry: RunExpiry) => void): void {
    const { phase, runId } = run;
    if (phase.state !== "RUNNING") return;
    const now = this.#time.nowMs();
    const expire = (expiry: RunExpiry) => () => {
      this.end(runId);
      onExpire(expiry);
    };
    const cancelDeadline =
      phase.deadlineAt === undefined
        ? () => {}
        : this.#clock.setTimer(Math.max(0, phase.deadlineAt - now), expire("DEADLINE"));
    const leaseMs = Math.max(0, phase.leaseExpiresAt - now);
    const cancelLease = this.#clock.setTimer(leaseMs, expire("LEASE_EXPIRED"));
    this.#timers.set(runId, { onExpire, cancelDeadline, cancelLease });
  }

  /** The lease of a run begins anew, for its whole step timeout. */
  renewLease({ runId, settings }: Run): void {
    const timers = this.#timers.get(runId);
    if (timers === undefined) return;
    timers.cancelLease();
    timers.cancelLease = this.#clock.setTimer(settings.stepTimeoutMs, () => {
      this.end(runId);
      timers.onExpire("LEASE_EXPIRED");
    });
  }

  /** Waits for a run no more. */
  end(runId: string): void {
    const timers = this.#timers.get(runId);
    timers?.cancelLease();
    timers?.cancelDeadline();
    this.#timers.delete(runId);
  }

  endAll(): void {
    for (const runId of [...this.#timers.keys()]) this.end(runId);
  }
}
