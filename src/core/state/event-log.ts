import { abortError, BerthError } from "../errors.ts";
import type { Clock } from "../ports/clock.ts";
import type { EventStore } from "../ports/sandbox-store.ts";
import type { SandboxEvent, SandboxHappening } from "../sandbox/sandbox-event.ts";

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

/** The newest lifecycle events, in order, for any number of watchers. What the store has of them goes on after a restart. */
export class EventLog {
  readonly #clock: Clock;
  readonly #store: EventStore;
  readonly #keep: number;
  #events: SandboxEvent[];
  #last: number;
  readonly #wake = new Set<() => void>();

  /** @param keep how many events are kept. */
  constructor(clock: Clock, store: EventStore, keep = 10_000) {
    this.#clock = clock;
    this.#store = store;
    this.#keep = keep;
    this.#events = store.load(keep);
    this.#last = store.last();
  }

  /** The event that comes next, where this happens now. It is to be stored, then told by {@link tell}. */
  next(
    subject: { sandboxId: string; generation: number; owner: string },
    happening: SandboxHappening,
  ): SandboxEvent {
    const { sandboxId, generation, owner } = subject;
    return {
      sequence: this.#last + 1,
      timeMs: this.#clock.wallMs(),
      sandboxId,
      generation,
      owner,
      happening,
    };
  }

  /** Puts an event into the store. @throws `NO_SPACE` */
  store(event: SandboxEvent): void {
    this.#store.append(event);
    if (event.sequence % Math.ceil(this.#keep / 4) === 0) this.#store.trim(event.sequence - this.#keep);
  }

  /** Tells watchers of an event. */
  tell(event: SandboxEvent): void {
    this.#last = event.sequence;
    this.#events.push(event);
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
        const event = this.#first(next);
        // What was trimmed, and what a full disk kept from outliving the service.
        const gone = (event?.sequence ?? this.#last + 1) - 1;
        if (next <= gone) {
          yield { type: "trimmed", from: next, to: gone };
          next = gone + 1;
          continue;
        }
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

  /** The first event that is kept from a sequence on. */
  #first(sequence: number): SandboxEvent | undefined {
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#events[middle] as SandboxEvent).sequence < sequence) low = middle + 1;
      else high = middle;
    }
    return this.#events[low];
  }

  get watchers(): number {
    return this.#wake.size;
  }
}
