import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { Lease } from "../sandboxes/lease.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Run, RunOutcome } from "./run.ts";

/** How many runs may be RUNNING at once. */
const MAX_RUNNING = 10_000;

/** The place of a run that is being started. To be released when the run is RUNNING, or will not be. */
export interface StartingRun extends Reservation {
  /** Keeps the sandbox that the run will work in for it alone. @throws `SANDBOX_IN_USE` while another run does. */
  claim(sandboxId: string): void;
}

/** Which runs are RUNNING, and in which sandboxes: what others may know of runs. */
export class RunningRuns {
  /** Key of the sandbox that each works in; undefined without one. By key of the run. */
  readonly #runs = new Map<string, string | undefined>();
  /** Runs that work in a sandbox, or are being started to. */
  readonly #bySandbox = new Map<string, string>();
  readonly #most: number;
  #starting = 0;

  constructor(most = MAX_RUNNING) {
    this.#most = most;
  }

  add(owner: string, runId: string, sandboxId: string | undefined): void {
    const sandbox = sandboxId === undefined ? undefined : key(owner, sandboxId);
    this.#runs.set(key(owner, runId), sandbox);
    if (sandbox !== undefined) this.#bySandbox.set(sandbox, runId);
  }

  remove(owner: string, runId: string): void {
    const sandbox = this.#runs.get(key(owner, runId));
    this.#runs.delete(key(owner, runId));
    if (sandbox !== undefined) this.#unclaim(sandbox, runId);
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

  /** A place for a run that is about to be started. @throws `TOO_MANY_OPERATIONS` where no further run may be. */
  reserve(owner: string, runId: string): StartingRun {
    if (this.#runs.size + this.#starting >= this.#most) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The server has reached its limit of ${this.#most} runs that are RUNNING. Wait for one to end.`,
        { metadata: { limit: String(this.#most) } },
      );
    }
    this.#starting++;
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
        this.#starting--;
        const works = claimed !== undefined && this.#runs.get(key(owner, runId)) === claimed;
        if (claimed !== undefined && !works) this.#unclaim(claimed, runId);
      },
    };
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

/** Ids are the owner's own: two owners may use the same one for a sandbox. */
function key(owner: string, id: string): string {
  return JSON.stringify([owner, id]);
}

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
