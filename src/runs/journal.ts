import { BerthError, hasReason } from "../base/errors.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { Run, RunEvent } from "./run.ts";
import { eventsOf, type ListedRun, type RunChange, type RunQuery, type RunStore } from "./store.ts";

/** A change that is not stored yet. `change` is undefined if the run is removed. */
interface Waiting {
  readonly change: RunChange | undefined;
}

/**
 * Reads and writes runs. Ends and removals free something, so they happen even if the disk is full: they then wait in
 * memory until there is room. If the service ends before that, the next one finds the run as it was and ends it again.
 */
export class RunJournal {
  readonly #store: RunStore;
  readonly #writeBehind: WriteBehind;
  readonly #onStored: (runId: string) => void;
  /** By run id. No run that is RUNNING is in it. */
  readonly #waiting = new Map<string, Waiting>();

  /** @param onStored called when a change of a run that waited is stored. */
  constructor(store: RunStore, writeBehind: WriteBehind, onStored: (runId: string) => void) {
    this.#store = store;
    this.#writeBehind = writeBehind;
    this.#onStored = onStored;
  }

  get(owner: string, runId: string): Run | undefined {
    const stored = this.#store.get(owner, runId);
    const waiting = this.#waiting.get(runId);
    return stored === undefined || waiting === undefined ? stored : waiting.change?.run;
  }

  /**
   * Lists runs as the store does, by the state that they are in by now, and where the next page starts if there is one.
   * While changes wait, a page may hold fewer runs than its limit although more follow.
   */
  list(query: RunQuery): { readonly runs: readonly ListedRun[]; readonly next: number | undefined } {
    const { owner, states } = query;
    const isExact = this.#waiting.size === 0 || states.size === 0;
    // The store still has the runs whose end waits as RUNNING.
    const wide = isExact ? query : { ...query, states: new Set(states).add("RUNNING") };
    const { runs, more } = this.#store.list(wide);
    const next = more ? runs.at(-1)?.position : undefined;
    if (this.#waiting.size === 0) return { runs, next };
    const current = runs.flatMap((listed) => {
      const run = this.get(owner, listed.run.runId);
      return run && (states.size === 0 || states.has(run.phase.state)) ? [{ ...listed, run }] : [];
    });
    return { runs: current, next };
  }

  /** Writes a change as the store does. @throws `NO_SPACE` also while an earlier change of the run waits. */
  save(change: RunChange, maxBytes?: number): string[] {
    const { runId } = change.run;
    if (this.#waiting.has(runId)) {
      throw new BerthError(
        "NO_SPACE",
        "The end of the run is not stored yet, because the disk of the server's data directory was full. Try again when it has space.",
        { metadata: { run_id: runId }, retryAfterMs: 1_000 },
      );
    }
    return this.#store.save(change, maxBytes);
  }

  /** Writes a change of a run that is not RUNNING any more. If the disk is full, it waits. */
  saveEventually(change: RunChange): void {
    const { runId } = change.run;
    const before = this.#waiting.get(runId)?.change;
    const whole = before ? { ...change, events: [...before.events, ...change.events] } : change;
    this.#eventually(runId, { change: whole });
  }

  /** Removes a run. If the disk is full, the removal waits, and the run appears as removed. */
  removeEventually(runId: string): void {
    this.#eventually(runId, { change: undefined });
  }

  /** The end of a run's history, with the events that are not stored yet. See {@link RunStore.newestEvents}. */
  newestEvents(runId: string): RunEvent[] {
    const stored = this.#store.newestEvents(runId);
    const change = this.#waiting.get(runId)?.change;
    return change === undefined ? stored : [...stored, ...eventsOf(change, stored.at(-1)?.sequence ?? 0)];
  }

  /** Stores what waits of a run. Call it outside of transactions. @throws `NO_SPACE` */
  flush(runId: string): void {
    const waiting = this.#waiting.get(runId);
    if (waiting === undefined) return;
    this.#write(runId, waiting);
    this.#stored(runId);
  }

  #eventually(runId: string, next: Waiting): void {
    try {
      this.#write(runId, next);
      this.#stored(runId);
    } catch (error) {
      if (!hasReason(error, "NO_SPACE")) throw error;
      this.#waiting.set(runId, next);
      this.#writeBehind.add(
        keyOf(runId),
        () => this.#write(runId, next),
        () => this.#stored(runId),
      );
    }
  }

  #write(runId: string, { change }: Waiting): void {
    if (change === undefined) this.#store.remove(runId);
    else this.#store.save(change);
  }

  #stored(runId: string): void {
    if (!this.#waiting.delete(runId)) return;
    this.#writeBehind.drop(keyOf(runId));
    this.#onStored(runId);
  }
}

function keyOf(runId: string): string {
  return `run ${runId}`;
}
