import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";
import { SharedPlaces } from "../base/shared-places.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Run, RunOutcome } from "./run.ts";

/** How many runs may be RUNNING at once. */
const MAX_RUNNING = 10_000;

/** The place of a run that is being started. Release it when the run is RUNNING or its start has failed. */
export interface StartingRun extends Reservation {
  /** Reserves the sandbox in which the run will work. @throws `SANDBOX_IN_USE` if another run has it. */
  claim(sandboxId: string): void;
}

/** One start of a run. */
export type StartOfRun = Pick<Run, "owner" | "runId" | "startId">;

/** Called when a run must end although nobody asked: its time is up, or its sandbox has ended. */
type OnRunLost = (run: StartOfRun, outcome: RunOutcome, message: string) => void;

/** A run that is RUNNING. */
interface RunningRun {
  /** Key of its sandbox. Undefined: none. */
  readonly sandbox: string | undefined;
  readonly onLost: OnRunLost;
  /** Undefined once its time is up. */
  timers: { readonly cancelDeadline: CancelTimer; cancelLease: CancelTimer } | undefined;
  /** Lease on its sandbox. */
  lease: Lease | undefined;
}

/** The RUNNING runs: their number, their timers, and the sandboxes that they hold. Timers use the monotonic clock. */
export class RunningRuns {
  readonly #clock: Clock;
  readonly #time: Pick<ServiceTime, "nowMs">;
  /** By key of the run. */
  readonly #runs = new Map<string, RunningRun>();
  /** By key of the sandbox: the run that works in it, or will once it has started. */
  readonly #bySandbox = new Map<string, string>();
  readonly #max: number;
  /** Also counts runs that are starting. */
  readonly #places: SharedPlaces;

  constructor(clock: Clock, time: Pick<ServiceTime, "nowMs">, max = MAX_RUNNING) {
    this.#clock = clock;
    this.#time = time;
    this.#max = max;
    this.#places = new SharedPlaces(max);
  }

  has(owner: string, runId: string): boolean {
    return this.#runs.has(key(owner, runId));
  }

  /** @throws `RUN_STATE` unless the owner's run is RUNNING. */
  assertRunning(owner: string, runId: string): void {
    if (this.has(owner, runId)) return;
    throw new BerthError("RUN_STATE", `run_id: no run ${JSON.stringify(runId)} is RUNNING.`, {
      metadata: { run_id: runId },
    });
  }

  /**
   * Reserves a place for a run that is about to start. @throws `TOO_MANY_OPERATIONS` at the limit or at the owner's
   * share.
   */
  reserve(owner: string, runId: string): StartingRun {
    if (!this.#places.hasRoomFor(owner)) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The server has places for ${this.#max} RUNNING runs: ${this.#places.free} are free, and ${this.#places.of(owner)} are yours. Wait for one of your runs to end.`,
        { metadata: { limit: String(this.#max) } },
      );
    }
    this.#places.take(owner);
    let held = true;
    let claimed: string | undefined;
    return {
      claim: (sandboxId) => {
        this.#claim(owner, sandboxId, runId);
        claimed = key(owner, sandboxId);
      },
      release: () => {
        if (!held) return;
        held = false;
        this.#places.giveBack(owner);
        const works = claimed !== undefined && this.#runs.get(key(owner, runId))?.sandbox === claimed;
        if (claimed !== undefined && !works) this.#unclaim(claimed, runId);
      },
    };
  }

  /** Adds a run and starts the timers of its lease and its deadline. `onLost` may be called until {@link remove}. */
  add(run: Run, onLost: OnRunLost): void {
    const { owner, runId, phase } = run;
    const sandbox = run.sandbox && key(owner, run.sandbox.sandboxId);
    const running: RunningRun = { sandbox, onLost, timers: undefined, lease: undefined };
    if (!this.has(owner, runId)) this.#places.take(owner);
    this.#runs.set(key(owner, runId), running);
    if (sandbox !== undefined) this.#bySandbox.set(sandbox, runId);
    if (phase.state !== "RUNNING") return;
    const now = this.#time.nowMs();
    const { deadlineAt, leaseExpiresAt } = phase;
    running.timers = {
      cancelDeadline:
        deadlineAt === undefined
          ? () => {}
          : this.#clock.setTimer(Math.max(0, deadlineAt - now), () => expire(run, running, "DEADLINE")),
      cancelLease: this.#leaseTimer(run, running, Math.max(0, leaseExpiresAt - now)),
    };
  }

  /** Keeps the lease on a run's sandbox. From now on the run ends if its sandbox does. */
  hold(run: Run, lease: Lease): void {
    const running = this.#of(run);
    if (running === undefined) {
      lease.release();
      return;
    }
    running.lease = lease;
    const onEnd = (): void => running.onLost(run, "ERROR", lossText(lease.signal.reason));
    lease.signal.addEventListener("abort", onEnd, { once: true });
    if (lease.signal.aborted) onEnd();
  }

  /** Restarts the run's lease with its whole step timeout. */
  renew(run: Run): void {
    const running = this.#of(run);
    if (running?.timers === undefined) return;
    running.timers.cancelLease();
    running.timers.cancelLease = this.#leaseTimer(run, running, run.settings.stepTimeoutMs);
  }

  /** Removes a run that has ended, and releases its sandbox. */
  remove(run: Run): void {
    const running = this.#of(run);
    if (running === undefined) return;
    this.#runs.delete(key(run.owner, run.runId));
    this.#places.giveBack(run.owner);
    if (running.sandbox !== undefined) this.#unclaim(running.sandbox, run.runId);
    cancelTimers(running);
    running.lease?.release();
  }

  /** Stops all timers. */
  stop(): void {
    for (const running of this.#runs.values()) cancelTimers(running);
  }

  #of({ owner, runId }: Run): RunningRun | undefined {
    return this.#runs.get(key(owner, runId));
  }

  #leaseTimer(run: Run, running: RunningRun, ms: number): CancelTimer {
    return this.#clock.setTimer(ms, () => expire(run, running, "LEASE_EXPIRED"));
  }

  #claim(owner: string, sandboxId: string, runId: string): void {
    const sandbox = key(owner, sandboxId);
    const user = this.#bySandbox.get(sandbox);
    if (user !== undefined) {
      throw new BerthError(
        "SANDBOX_IN_USE",
        `The run ${user} works in the sandbox ${JSON.stringify(sandboxId)}. Wait for its end, or cancel it.`,
        { metadata: { sandbox_id: sandboxId, run_id: user } },
      );
    }
    this.#bySandbox.set(sandbox, runId);
  }

  #unclaim(sandbox: string, runId: string): void {
    if (this.#bySandbox.get(sandbox) === runId) this.#bySandbox.delete(sandbox);
  }
}

/** The message of a run that lost its sandbox. */
export function lossText(cause: unknown): string {
  return `The run lost its sandbox. ${cause instanceof BerthError ? cause.message : "It ended."}`;
}

function expire(run: Run, running: RunningRun, outcome: "LEASE_EXPIRED" | "DEADLINE"): void {
  const { stepTimeoutMs, maxDurationMs = 0 } = run.settings;
  cancelTimers(running);
  running.onLost(
    run,
    outcome,
    outcome === "DEADLINE"
      ? `The run exceeded its maximum duration of ${maxDurationMs / 1000} s.`
      : `The caller was silent for ${stepTimeoutMs / 1000} s: the lease is lost.`,
  );
}

function cancelTimers(running: RunningRun): void {
  running.timers?.cancelLease();
  running.timers?.cancelDeadline();
  running.timers = undefined;
}

/** Includes the owner: two owners may use the same sandbox id. */
function key(owner: string, id: string): string {
  return compositeKey(owner, id);
}
