import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";
import type { Reservation } from "../sandboxes/capacity.ts";

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
  return compositeKey(owner, id);
}
