import type { CancelTimer, Clock } from "./ports/clock.ts";
import type { Run } from "./run.ts";

/** After a restart of the service a lease runs on for so long at least: its caller must come back first. */
const COME_BACK_MS = 10_000;

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
  /** By run id; only of runs that are RUNNING. */
  readonly #timers = new Map<string, Timers>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Begins to wait for a run; `onExpire` is called once at most. */
  begin(run: Run, onExpire: (expiry: RunExpiry) => void): void {
    const { phase, runId } = run;
    if (phase.state !== "RUNNING") return;
    const now = this.#clock.wallMs();
    const expire = (expiry: RunExpiry) => () => {
      this.end(runId);
      onExpire(expiry);
    };
    const cancelDeadline =
      phase.deadlineMs === undefined
        ? () => {}
        : this.#clock.setTimer(Math.max(0, phase.deadlineMs - now), expire("DEADLINE"));
    const leaseMs = Math.max(0, phase.leaseExpireTimeMs - now);
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

/**
 * A run as it goes on after a restart of the service. What was written is wall
 * time, which may have jumped: neither bound is further away than it was when
 * it was set.
 */
export function carriedOn(run: Run, nowMs: number): Run {
  const { phase, settings } = run;
  if (phase.state !== "RUNNING") return run;
  const { stepTimeoutMs, maxDurationMs } = settings;
  const least = Math.min(stepTimeoutMs, COME_BACK_MS);
  const leaseMs = Math.min(Math.max(phase.leaseExpireTimeMs - nowMs, least), stepTimeoutMs);
  const deadlineMs =
    phase.deadlineMs === undefined || maxDurationMs === undefined
      ? undefined
      : Math.min(phase.deadlineMs, nowMs + maxDurationMs);
  return { ...run, phase: { ...phase, leaseExpireTimeMs: nowMs + leaseMs, deadlineMs } };
}
