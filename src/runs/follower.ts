import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Run, RunOutcome } from "./run.ts";
import type { RunningRuns } from "./running-runs.ts";
import { type RunExpiry, RunTimers } from "./timers.ts";

/** One start of a run. */
export type StartOfRun = Pick<Run, "owner" | "runId" | "startId">;

/** Called when a run has to end on nobody's behalf: its time is up, or its sandbox has ended. */
export type OnRunLost = (run: StartOfRun, outcome: RunOutcome, message: string) => void;

/** Keeps the time of the runs that are RUNNING, and the leases on their sandboxes. */
export class RunFollower {
  readonly #running: RunningRuns;
  readonly #timers: RunTimers;
  readonly #onLost: OnRunLost;
  /** By run id. */
  readonly #leases = new Map<string, Lease>();

  constructor(running: RunningRuns, clock: Clock, time: Pick<ServiceTime, "nowMs">, onLost: OnRunLost) {
    this.#running = running;
    this.#timers = new RunTimers(clock, time);
    this.#onLost = onLost;
  }

  /** From now on the run's time counts. */
  follow(run: Run): void {
    this.#running.add(run.owner, run.runId, run.sandbox?.sandboxId);
    this.#timers.begin(run, (expiry) => this.#onLost(run, expiry, expiryText(run, expiry)));
  }

  /** From now on the end of the sandbox is the end of the run. */
  hold(run: Run, lease: Lease): void {
    this.#leases.set(run.runId, lease);
    const onEnd = (): void => this.#onLost(run, "ERROR", lossText(lease.signal.reason));
    lease.signal.addEventListener("abort", onEnd, { once: true });
    if (lease.signal.aborted) onEnd();
  }

  /** The run's lease begins anew. */
  renew(run: Run): void {
    this.#timers.renewLease(run);
  }

  /** Whether the run is followed. */
  has(run: Run): boolean {
    return this.#running.has(run.owner, run.runId);
  }

  /** Lets go of a run that has ended. */
  drop({ owner, runId }: Run): void {
    this.#running.remove(owner, runId);
    this.#timers.end(runId);
    this.#leases.get(runId)?.release();
    this.#leases.delete(runId);
  }

  /** No run's time is up any more. */
  stop(): void {
    this.#timers.endAll();
  }
}

/** What is said of a run that lost its sandbox. */
export function lossText(cause: unknown): string {
  return `The run lost its sandbox. ${cause instanceof BerthError ? cause.message : "It ended."}`;
}

function expiryText({ settings }: Run, expiry: RunExpiry): string {
  const { stepTimeoutMs, maxDurationMs = 0 } = settings;
  return expiry === "DEADLINE"
    ? `The run took longer than ${maxDurationMs / 1000} s, as long as it may.`
    : `The caller was silent for ${stepTimeoutMs / 1000} s: the lease is lost.`;
}
