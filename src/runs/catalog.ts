import { abortError, BerthError } from "../base/errors.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { RunJournal } from "./journal.ts";
import type { Run, RunEvent, RunMessage, RunState, RunStep } from "./run.ts";
import type { RunStore } from "./store.ts";

/** A run with its newest steps. */
export interface RunView {
  readonly run: Run;
  /** See {@link RunStore.steps}. */
  readonly steps: readonly RunStep[];
  readonly messageCount: number;
}

/** Which page of a list of runs to return. */
interface RunPage {
  /** Empty: every state. */
  readonly states: ReadonlySet<RunState>;
  readonly limit: number;
  /** `next` of the previous page. Undefined: the first page. */
  readonly before: number | undefined;
}

/** An item of a watch: an event, or a gap: the sequences from..to, whose events are no longer kept. */
type RunWatchItem =
  | { readonly type: "event"; readonly event: RunEvent }
  | { readonly type: "trimmed"; readonly from: number; readonly to: number };

interface Watchers {
  count: number;
  /** Wakes those that wait for an event. */
  waiting: Set<() => void>;
  /** The newest read, which all that wait at the same position share. */
  read: { readonly after: number; readonly events: readonly RunEvent[] } | undefined;
  /** Set when the run is removed: the end of its history. */
  rest: readonly RunEvent[] | undefined;
  /** What `rest` becomes if the store no longer has the run. */
  history: readonly RunEvent[];
}

/** How many events are read at once, at most. */
const BATCH = 100;
/** The share of the event loop for watchers that wait for an event: a run may have thousands. */
const turns = new TurnShare();

/**
 * Reads and watches runs. A watcher holds little memory: events that it has not read yet stay in the store. Every
 * method takes the owner; a run of another owner is `RUN_NOT_FOUND`.
 */
export class RunCatalog {
  readonly #store: RunStore;
  readonly #journal: RunJournal;
  /** By run id. */
  readonly #watched = new Map<string, Watchers>();

  constructor(store: RunStore, journal: RunJournal) {
    this.#store = store;
    this.#journal = journal;
  }

  /** @throws `RUN_NOT_FOUND`. */
  find(owner: string, runId: string): Run {
    const run = this.#journal.get(owner, runId);
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

  /** See {@link RunStore.messages}. @throws `RUN_NOT_FOUND`. */
  messages(owner: string, runId: string, skip: number): readonly RunMessage[] {
    this.find(owner, runId);
    return this.#store.messages(runId, skip);
  }

  /** An owner's runs, newest first, without their steps; and the start of the next page, if there is one. */
  list(
    owner: string,
    page: RunPage,
  ): { readonly runs: readonly RunView[]; readonly next: number | undefined } {
    const { runs, next } = this.#journal.list({ owner, ...page });
    return { runs: runs.map(({ run, messageCount }) => ({ run, steps: [], messageCount })), next };
  }

  /**
   * Yields the kept events of a run after `afterSequence`, then new ones as they happen. Ends when the run is deleted
   * or displaced by newer runs; a watcher that is far behind then gets the newest events. Throws the signal's error when the signal is aborted.
   * @throws `RUN_NOT_FOUND`; `OFFSET_OUT_OF_RANGE` if `afterSequence` is beyond the newest event.
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

  /** Wakes the watchers of a run, because the store has new events. */
  changed(runId: string): void {
    const watchers = this.#watched.get(runId);
    if (watchers !== undefined) wakeAll(watchers);
  }

  /**
   * Keeps the end of a run's history for its watchers, because the store is about to remove it, which may still fail. Not
   * all of it: that can have megabytes.
   */
  readonly displacing = (runId: string): void => {
    const watchers = this.#watched.get(runId);
    if (watchers !== undefined) watchers.history = this.#store.newestEvents(runId);
  };

  /**
   * Gives the watchers of a run the end of its history, and ends them. Called before the run is removed from the store.
   */
  removing(runId: string): void {
    const watchers = this.#watched.get(runId);
    if (watchers === undefined) return;
    watchers.rest = this.#journal.newestEvents(runId);
    this.#watched.delete(runId);
    wakeAll(watchers);
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
    const watchers = this.#watched.get(runId) ?? noWatchers();
    this.#watched.set(runId, watchers);
    watchers.count++;
    let wake = (): void => {};
    const onWake = (): void => wake();
    signal.addEventListener("abort", onWake);
    let last = afterSequence;
    try {
      while (true) {
        if (signal.aborted) throw abortError(signal);
        const { rest } = watchers;
        const events =
          rest === undefined
            ? this.#next(runId, last, watchers)
            : rest.filter(({ sequence }) => sequence > last);
        for (const event of events) {
          if (event.sequence > last + 1) yield { type: "trimmed", from: last + 1, to: event.sequence - 1 };
          last = event.sequence;
          yield { type: "event", event };
          if (signal.aborted) throw abortError(signal);
        }
        if (rest !== undefined) return;
        // Events may have arrived while the last one was yielded: read them before waiting.
        if (watchers.rest !== undefined || events.length > 0) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
          watchers.waiting.add(onWake);
        });
      }
    } finally {
      watchers.waiting.delete(onWake);
      signal.removeEventListener("abort", onWake);
      watchers.count--;
      if (watchers.count === 0 && this.#watched.get(runId) === watchers) this.#watched.delete(runId);
    }
  }

  /** The next events in the store. None: the newest was read, or {@link Watchers.rest} has what follows. */
  #next(runId: string, after: number, watchers: Watchers): readonly RunEvent[] {
    if (watchers.read?.after === after) return watchers.read.events;
    const events = this.#store.events(runId, after, BATCH);
    watchers.read = { after, events };
    // The run was displaced by newer ones: every run in the store has events.
    if (events.length === 0 && this.#store.newestEvent(runId) === 0) watchers.rest ??= watchers.history;
    return events;
  }
}

function noWatchers(): Watchers {
  return { count: 0, waiting: new Set(), read: undefined, rest: undefined, history: [] };
}

function wakeAll(watchers: Watchers): void {
  const { waiting } = watchers;
  watchers.waiting = new Set();
  watchers.read = undefined;
  void turns.wakeEach(waiting);
}
