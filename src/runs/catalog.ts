import { abortError, BerthError } from "../base/errors.ts";
import type { Run, RunEvent, RunMessage, RunState, RunStep } from "./run.ts";
import type { RunStore } from "./store.ts";

/** A run with all that belongs to it. */
export interface RunView {
  readonly run: Run;
  readonly steps: readonly RunStep[];
  readonly messageCount: number;
}

/** Which part of a list of runs is asked for. */
export interface RunPage {
  /** Empty: in every state. */
  readonly states: ReadonlySet<RunState>;
  readonly limit: number;
  /** `next` of the page before. Undefined: the first page. */
  readonly before: number | undefined;
}

/** An item of a watch: an event, or the sequences from..to of events that are no longer kept. */
export type RunWatchItem =
  | { readonly type: "event"; readonly event: RunEvent }
  | { readonly type: "trimmed"; readonly from: number; readonly to: number };

interface Watchers {
  readonly wake: Set<() => void>;
  /** The rest of the history of a run that was deleted. */
  rest: readonly RunEvent[] | undefined;
}

/** Read at once, so that a slow watcher holds little. */
const BATCH = 100;

/**
 * Reads and watches runs. A watcher holds little: what it has not read yet stays
 * in the store. Every method names the owner; another owner's run is `RUN_NOT_FOUND`.
 */
export class RunCatalog {
  readonly #store: RunStore;
  /** By run id. */
  readonly #watched = new Map<string, Watchers>();

  constructor(store: RunStore) {
    this.#store = store;
  }

  /** @throws `RUN_NOT_FOUND`. */
  find(owner: string, runId: string): Run {
    const run = this.#store.get(owner, runId);
    if (run !== undefined) return run;
    throw new BerthError("RUN_NOT_FOUND", `There is no run ${JSON.stringify(runId)}.`, {
      metadata: { run_id: runId },
    });
  }

  /** @throws `RUN_NOT_FOUND`. */
  get(owner: string, runId: string): RunView {
    const run = this.find(owner, runId);
    return { run, steps: this.#store.steps(runId), messageCount: this.#store.messageCount(runId) };
  }

  /** The messages that are kept of a run, in their order. @throws `RUN_NOT_FOUND`. */
  messages(owner: string, runId: string): readonly RunMessage[] {
    this.find(owner, runId);
    return this.#store.messages(runId);
  }

  /** Runs of an owner, newest first, without their steps; and the start of the next page, if there is one. */
  list(
    owner: string,
    page: RunPage,
  ): { readonly runs: readonly RunView[]; readonly next: number | undefined } {
    const { runs, more } = this.#store.list({ owner, ...page });
    return {
      runs: runs.map(({ run, messageCount }) => ({ run, steps: [], messageCount })),
      next: more ? runs.at(-1)?.position : undefined,
    };
  }

  /**
   * The kept events of a run after `afterSequence`, then what happens, until it
   * is deleted, gives way to newer runs, or the signal is aborted: then it throws the signal's error.
   * @throws `RUN_NOT_FOUND`; `OFFSET_OUT_OF_RANGE` when `afterSequence` lies beyond the newest event.
   */
  watch(
    owner: string,
    runId: string,
    afterSequence: number,
    signal: AbortSignal,
  ): AsyncGenerator<RunWatchItem> {
    this.find(owner, runId);
    return this.#watch(runId, afterSequence, signal);
  }

  /** Wakes the watchers of a run: the store has more of it. */
  changed(runId: string): void {
    for (const wake of this.#watched.get(runId)?.wake ?? []) wake();
  }

  /** Gives the watchers of a run that is about to be removed from the store the rest of its history, and ends them. */
  removing(runId: string): void {
    const watchers = this.#watched.get(runId);
    if (watchers === undefined) return;
    watchers.rest = this.#store.events(runId, 0, Number.MAX_SAFE_INTEGER);
    this.#watched.delete(runId);
    for (const wake of watchers.wake) wake();
  }

  async *#watch(runId: string, afterSequence: number, signal: AbortSignal): AsyncGenerator<RunWatchItem> {
    const newest = this.#store.newestEvent(runId);
    if (afterSequence > newest) {
      throw new BerthError(
        "OFFSET_OUT_OF_RANGE",
        `after_sequence: ${afterSequence} lies beyond the newest event of the run (${newest}).`,
        { metadata: { newest: String(newest) } },
      );
    }
    const watchers = this.#watched.get(runId) ?? { wake: new Set(), rest: undefined };
    this.#watched.set(runId, watchers);
    let wake = (): void => {};
    const onWake = (): void => wake();
    watchers.wake.add(onWake);
    signal.addEventListener("abort", onWake);
    let last = afterSequence;
    try {
      while (true) {
        if (signal.aborted) throw abortError(signal);
        const { rest } = watchers;
        const events =
          rest === undefined
            ? this.#store.events(runId, last, BATCH)
            : rest.filter(({ sequence }) => sequence > last);
        for (const event of events) {
          if (event.sequence > last + 1) yield { type: "trimmed", from: last + 1, to: event.sequence - 1 };
          last = event.sequence;
          yield { type: "event", event };
          if (signal.aborted) throw abortError(signal);
        }
        if (rest !== undefined) return;
        // It gave way to newer ones: each that is kept has events.
        if (events.length === 0 && this.#store.newestEvent(runId) === 0) return;
        // Events that came while the last one was yielded are read before it waits.
        if (watchers.rest !== undefined || events.length > 0) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    } finally {
      watchers.wake.delete(onWake);
      signal.removeEventListener("abort", onWake);
      if (watchers.wake.size === 0 && this.#watched.get(runId) === watchers) this.#watched.delete(runId);
    }
  }
}
