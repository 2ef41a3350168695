import { BerthError } from "../errors.ts";

/** How many runs may be RUNNING at once. */
const MOST_RUNNING = 10_000;

/** Which runs are RUNNING, and in which sandboxes: what others may know of runs. */
export class RunningRuns {
  /** Key of the sandbox that each works in; undefined without one. By key of the run. */
  readonly #runs = new Map<string, string | undefined>();
  readonly #bySandbox = new Map<string, string>();

  add(owner: string, runId: string, sandboxId: string | undefined): void {
    const sandbox = sandboxId === undefined ? undefined : key(owner, sandboxId);
    this.#runs.set(key(owner, runId), sandbox);
    if (sandbox !== undefined) this.#bySandbox.set(sandbox, runId);
  }

  remove(owner: string, runId: string): void {
    const sandbox = this.#runs.get(key(owner, runId));
    this.#runs.delete(key(owner, runId));
    if (sandbox !== undefined) this.#bySandbox.delete(sandbox);
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

  /** @throws `SANDBOX_IN_USE` while a run that is RUNNING works in the sandbox. */
  assertFree(owner: string, sandboxId: string): void {
    const user = this.#bySandbox.get(key(owner, sandboxId));
    if (user === undefined) return;
    throw new BerthError(
      "SANDBOX_IN_USE",
      `The run ${user} works in the sandbox ${JSON.stringify(sandboxId)}. Wait for its end, or cancel it.`,
      { metadata: { sandbox_id: sandboxId, run_id: user } },
    );
  }

  /** @throws `TOO_MANY_OPERATIONS` where no further run may be started. */
  assertRoom(): void {
    if (this.#runs.size < MOST_RUNNING) return;
    throw new BerthError(
      "TOO_MANY_OPERATIONS",
      `${this.#runs.size} runs are RUNNING, as many as may be. Wait for one to end.`,
      { metadata: { limit: String(MOST_RUNNING) } },
    );
  }
}

/** Ids are the owner's own: two owners may use the same one for a sandbox. */
function key(owner: string, id: string): string {
  return JSON.stringify([owner, id]);
}
