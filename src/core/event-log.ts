import { abortError, BerthError } from "./errors.ts";
import type { Clock } from "./ports/clock.ts";
import type { PullProgress } from "./ports/engine.ts";
import type { Termination } from "./sandbox.ts";

/** What happened to a sandbox. */
export type SandboxHappening =
  | { readonly type: "CREATING" | "RUNNING" | "PAUSED" | "RESUMED" | "UPDATED" }
  | { readonly type: "IMAGE_PULL"; readonly image: string; readonly progress: PullProgress }
  | { readonly type: "DELETING" | "TERMINATED"; readonly termination: Termination };

/** An event with its place in the history. */
export interface SandboxEvent {
  /** Strictly growing, from 1. */
  readonly sequence: number;
  readonly timeMs: number;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly happening: SandboxHappening;
}

/** What a watcher gets: an event, or the news that events from..to are gone. */
export type WatchItem =
  | { readonly type: "event"; readonly event: SandboxEvent }
  | { readonly type: "trimmed"; readonly from: number; readonly to: number };

/** Whom and what a watcher wants to hear of. */
export interface WatchFilter {
  readonly owner: string;
  /** Undefined: every sandbox of the owner. */
  readonly sandboxId: string | undefined;
  /** Only events after this sequence. */
  readonly afterSequence: number;
}

/** The newest lifecycle events, in order, for any number of watchers. */
export class EventLog {
  readonly #clock: Clock;
  readonly #keep: number;
  #events: SandboxEvent[] = [];
  #last = 0;
  readonly #wake = new Set<() => void>();

  /** @param keep how many events are kept. */
  constructor(clock: Clock, keep = 10_000) {
    this.#clock = clock;
    this.#keep = keep;
  }

  append(
    subject: { sandboxId: string; generation: number; owner: string },
    happening: SandboxHappening,
  ): void {
    const { sandboxId, generation, owner } = subject;
    this.#events.push({
      sequence: ++this.#last,
      timeMs: this.#clock.wallMs(),
      sandboxId,
      generation,
      owner,
      happening,
    });
    // Trimmed in batches, so that an append costs no shift of the whole history.
    if (this.#events.length > this.#keep * 1.25) this.#events = this.#events.slice(-this.#keep);
    for (const wake of this.#wake) wake();
  }

  /**
   * The kept events after `afterSequence`, then what happens, until the signal
   * is aborted: then it throws the signal's error.
   * @throws `OFFSET_OUT_OF_RANGE` when `afterSequence` lies beyond the newest event.
   */
  async *watch(filter: WatchFilter, signal: AbortSignal): AsyncGenerator<WatchItem> {
    let next = filter.afterSequence + 1;
    if (filter.afterSequence > this.#last) {
      throw new BerthError(
        "OFFSET_OUT_OF_RANGE",
        `after_sequence ${filter.afterSequence} lies beyond the newest event (${this.#last}): the history was lost. Begin again with 0.`,
        { metadata: { newest: String(this.#last) } },
      );
    }
    let wake = (): void => {};
    const onWake = (): void => wake();
    this.#wake.add(onWake);
    signal.addEventListener("abort", onWake);
    try {
      while (true) {
        if (signal.aborted) throw abortError(signal);
        const oldest = this.#events[0]?.sequence ?? this.#last + 1;
        if (next < oldest) {
          yield { type: "trimmed", from: next, to: oldest - 1 };
          next = oldest;
          continue;
        }
        const event = this.#events[next - oldest];
        if (event === undefined) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        next = event.sequence + 1;
        if (event.owner !== filter.owner) continue;
        if (filter.sandboxId !== undefined && event.sandboxId !== filter.sandboxId) continue;
        yield { type: "event", event };
      }
    } finally {
      this.#wake.delete(onWake);
      signal.removeEventListener("abort", onWake);
    }
  }

  get watchers(): number {
    return this.#wake.size;
  }
}
