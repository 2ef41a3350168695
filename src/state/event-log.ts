import type { Clock } from "../base/clock.ts";
import { abortError, BerthError } from "../base/errors.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { EventRange, EventStore, LoggedEvent } from "./event-store.ts";

/** What a watcher gets: an event, or a notice that events `from` to `to` are gone. */
export type WatchItem<Body> =
  | { readonly type: "event"; readonly event: LoggedEvent<Body> }
  | ({ readonly type: "trimmed" } & EventRange);

/** Selects the events for a watcher. */
interface WatchFilter {
  readonly owner: string;
  /** Undefined: all sandboxes of the owner. */
  readonly sandboxId: string | undefined;
  /** Only events after this sequence number. */
  readonly afterSequence: number;
}

interface History<Body> {
  /** Oldest first. */
  readonly events: LoggedEvent<Body>[];
  /** Everything up to this sequence number is gone. */
  trimmedTo: number;
}

/** How many published events may have been lost from the disk when the machine lost power. */
const MAX_LOST_WITH_POWER = 100_000;
/** How many waiting events a transaction stores: it takes some 10 µs for each, even if the disk is still full. */
const STORED_AT_ONCE = 500;
/** The share of the event loop for watchers that wait for an event, of which there may be thousands. */
const turns = new TurnShare();

/** An event without a sequence number. */
type UnnumberedEvent<Body> = Omit<LoggedEvent<Body>, "sequence">;

/**
 * The newest events of sandboxes, in order, for any number of watchers. Includes events of earlier runs of the service.
 *
 * A sequence number is published only once, even if the service crashes: an event is stored before it is published (ADR
 * 0033). While the disk is full, events wait.
 */
export class EventLog<Body> {
  readonly #clock: Clock;
  readonly #store: EventStore<Body>;
  readonly #keep: number;
  readonly #histories = new Map<string, History<Body>>();
  #count = 0;
  #last: number;
  /** Ranges of lost events of all owners, in order. */
  readonly #losses: EventRange[];
  /** Whether the database records that this run stores events, and what was lost before it. */
  #isOpen = false;
  #newLoss: EventRange | undefined;
  /** Events that are not stored yet, in order. */
  #waiting: UnnumberedEvent<Body>[] = [];
  /** Whether more events came than may wait. */
  #overflow = false;
  /** Owners whose history was trimmed since the last write. */
  readonly #trimmed = new Set<string>();
  #watchers = 0;
  /** Wakes the watchers that wait for an event. */
  #waitingWatchers = new Set<() => void>();

  /** @param keep how many events to keep. Beyond that, the oldest of the owner with the most are removed first. */
  constructor(clock: Clock, store: EventStore<Body>, keep = 10_000) {
    this.#clock = clock;
    this.#store = store;
    this.#keep = keep;
    this.#last = store.newest();
    const { openedIn } = store;
    if (openedIn !== undefined && openedIn !== clock.bootId) {
      this.#newLoss = { from: this.#last + 1, to: this.#last + MAX_LOST_WITH_POWER };
      this.#last = this.#newLoss.to;
    }
    this.#open();
    this.#losses = [...store.losses(), ...(this.#newLoss === undefined ? [] : [this.#newLoss])];
    for (const [owner, trimmedTo] of store.trims()) this.#historyOf(owner).trimmedTo = trimmedTo;
    for (const event of store.load()) this.#add(event);
  }

  /** Creates an event with the current time, to {@link store} and then {@link publish}. */
  eventOf(
    subject: { sandboxId: string; generation: number; owner: string },
    body: Body,
  ): UnnumberedEvent<Body> {
    const { sandboxId, generation, owner } = subject;
    return { timeMs: this.#clock.wallMs(), sandboxId, generation, owner, body };
  }

  /**
   * Stores the waiting events and then this one, in the caller's transaction; without one, only the first of those that
   * wait.
   * @throws `NO_SPACE`, also if so many wait that this event must wait behind them.
   */
  store(event?: UnnumberedEvent<Body>): void {
    if (event !== undefined && this.#waiting.length > STORED_AT_ONCE) throw behindOthers();
    if (!this.#isOpen) this.#store.open(this.#clock.bootId, this.#newLoss);
    const { events, loss } = this.#next(event);
    for (const numbered of events) this.#store.append(numbered);
    if (loss !== undefined) this.#store.addLoss(loss);
    for (const owner of this.#trimmed) this.#store.trim(owner, this.#historyOf(owner).trimmedTo);
  }

  /** Publishes to watchers what {@link store} stored. Call it right after the transaction, with the same event. */
  publish(event?: UnnumberedEvent<Body>): void {
    const { events, loss } = this.#next(event);
    this.#isOpen = true;
    this.#newLoss = undefined;
    this.#waiting = this.#waiting.slice(events.length);
    if (loss !== undefined) this.#overflow = false;
    this.#trimmed.clear();
    for (const numbered of events) this.#add(numbered);
    if (loss !== undefined) this.#losses.push(loss);
    this.#last = loss?.to ?? events.at(-1)?.sequence ?? this.#last;
    const watchers = this.#waitingWatchers;
    this.#waitingWatchers = new Set();
    void turns.wakeEach(watchers);
  }

  /** Queues an event that could not be stored. */
  defer(event: UnnumberedEvent<Body>): void {
    // Once one is lost, so are those after it until the loss is stored: it has one place among the numbers.
    this.#overflow ||= this.#waiting.length >= this.#keep;
    if (!this.#overflow) this.#waiting.push(event);
  }

  /** Whether there are events that are not stored yet. */
  get waits(): boolean {
    return this.#waiting.length > 0;
  }

  /** Records that everything published is stored. Call it once, after the last event. */
  close(): void {
    if (!this.#isOpen || this.waits) return;
    try {
      this.#store.close();
    } catch {
      // If the machine restarts, the next run of the service assumes that some events were lost.
    }
  }

  /**
   * Yields the stored events after `afterSequence`, then new ones, until the signal is aborted. Then it throws the
   * signal's error.
   * @throws `OFFSET_OUT_OF_RANGE` if `afterSequence` is beyond the newest event.
   */
  async *watch(filter: WatchFilter, signal: AbortSignal): AsyncGenerator<WatchItem<Body>> {
    let next = filter.afterSequence + 1;
    if (filter.afterSequence > this.#last) {
      throw new BerthError(
        "OFFSET_OUT_OF_RANGE",
        `after_sequence ${filter.afterSequence} is beyond the newest event (${this.#last}): the history was lost. Start again from 0.`,
        { metadata: { newest: String(this.#last) } },
      );
    }
    let wake = (): void => {};
    const onWake = (): void => wake();
    this.#watchers++;
    signal.addEventListener("abort", onWake);
    try {
      while (true) {
        if (signal.aborted) throw abortError(signal);
        const event = this.#first(filter.owner, next);
        const gone = this.#firstGone(filter.owner, next);
        if (gone !== undefined && gone.from < (event?.sequence ?? Number.POSITIVE_INFINITY)) {
          yield { type: "trimmed", ...gone };
          next = gone.to + 1;
          continue;
        }
        if (event === undefined) {
          await new Promise<void>((resolve) => {
            wake = resolve;
            this.#waitingWatchers.add(onWake);
          });
          continue;
        }
        next = event.sequence + 1;
        if (filter.sandboxId !== undefined && event.sandboxId !== filter.sandboxId) continue;
        yield { type: "event", event };
      }
    } finally {
      this.#watchers--;
      this.#waitingWatchers.delete(onWake);
      signal.removeEventListener("abort", onWake);
    }
  }

  get watchers(): number {
    return this.#watchers;
  }

  /** What {@link store} stores: events with their sequence numbers, then the loss if not all could wait. */
  #next(event: UnnumberedEvent<Body> | undefined): {
    readonly events: readonly LoggedEvent<Body>[];
    readonly loss: EventRange | undefined;
  } {
    const first = this.#waiting.slice(0, STORED_AT_ONCE);
    const all = event === undefined ? first : [...first, event];
    const events = all.map((one, index) => ({ ...one, sequence: this.#last + 1 + index }));
    const behind = this.#last + all.length + 1;
    const hasLoss = this.#overflow && first.length === this.#waiting.length;
    return { events, loss: hasLoss ? { from: behind, to: behind } : undefined };
  }

  #open(): void {
    try {
      this.#store.open(this.#clock.bootId, this.#newLoss);
      this.#isOpen = true;
      this.#newLoss = undefined;
    } catch {
      // The disk is full. The first event that can be stored will be stored together with these.
    }
  }

  #add(event: LoggedEvent<Body>): void {
    this.#historyOf(event.owner).events.push(event);
    // Trim in batches, so that not every event shifts a whole history.
    if (++this.#count > this.#keep * 1.25) while (this.#count > this.#keep) this.#trimLargest();
  }

  /** Drops the oldest events of the owner with the most, until it has no more than the next one. */
  #trimLargest(): void {
    let owner = "";
    let largest = 0;
    let second = 0;
    for (const [other, { events }] of this.#histories) {
      if (events.length > largest) [owner, second, largest] = [other, largest, events.length];
      else second = Math.max(second, events.length);
    }
    const history = this.#historyOf(owner);
    const surplus = Math.max(1, Math.min(this.#count - this.#keep, largest - second));
    history.trimmedTo = history.events.splice(0, surplus).at(-1)?.sequence ?? history.trimmedTo;
    this.#count -= surplus;
    this.#trimmed.add(owner);
  }

  #historyOf(owner: string): History<Body> {
    const known = this.#histories.get(owner);
    if (known !== undefined) return known;
    const history: History<Body> = { events: [], trimmedTo: 0 };
    this.#histories.set(owner, history);
    return history;
  }

  /** An owner's first event with at least this sequence number. */
  #first(owner: string, sequence: number): LoggedEvent<Body> | undefined {
    const events = this.#histories.get(owner)?.events ?? [];
    let low = 0;
    let high = events.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((events[middle] as LoggedEvent<Body>).sequence < sequence) low = middle + 1;
      else high = middle;
    }
    return events[low];
  }

  /** The first range from this sequence number on in which an owner may have lost events. */
  #firstGone(owner: string, sequence: number): EventRange | undefined {
    const trimmedTo = this.#histories.get(owner)?.trimmedTo ?? 0;
    if (trimmedTo >= sequence) return { from: sequence, to: trimmedTo };
    const lost = this.#losses.find(({ to }) => to >= sequence);
    return lost && { from: Math.max(lost.from, sequence), to: lost.to };
  }
}

function behindOthers(): BerthError {
  return new BerthError(
    "NO_SPACE",
    "Many events are not stored yet, because the disk of the server's data directory was full. Try again when it has space.",
    { retryAfterMs: 1_000 },
  );
}
