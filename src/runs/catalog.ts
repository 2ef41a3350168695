import { BerthError } from "../base/errors.ts";
import type { RunFeed, RunWatchItem } from "./feed.ts";
import type { Run, RunMessage, RunState, RunStep } from "./run.ts";
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
  /** {@link RunCatalog.list} told it of the page before. Undefined: the first page. */
  readonly before: number | undefined;
}

/** The runs there are, for who reads of them. Every method names the owner; what is another owner's is `RUN_NOT_FOUND`. */
export class RunCatalog {
  readonly #store: RunStore;
  readonly #feed: RunFeed;

  constructor(store: RunStore, feed: RunFeed) {
    this.#store = store;
    this.#feed = feed;
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

  /** Runs of an owner, newest first, without their steps; and where the next page begins, if there is one. */
  list(
    owner: string,
    page: RunPage,
  ): { readonly runs: readonly RunView[]; readonly next: number | undefined } {
    const found = this.#store.list({ owner, ...page, limit: page.limit + 1 });
    const shown = found.slice(0, page.limit);
    return {
      runs: shown.map(({ run, messageCount }) => ({ run, steps: [], messageCount })),
      next: found.length > shown.length ? shown.at(-1)?.position : undefined,
    };
  }

  /** What happened to a run after a sequence, and what happens. @throws `RUN_NOT_FOUND`, `OFFSET_OUT_OF_RANGE`. */
  watch(
    owner: string,
    runId: string,
    afterSequence: number,
    signal: AbortSignal,
  ): AsyncGenerator<RunWatchItem> {
    this.find(owner, runId);
    return this.#feed.watch(runId, afterSequence, signal);
  }
}
