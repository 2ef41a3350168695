import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";

/** What was taken below a limit. */
export interface Reservation {
  /** Gives it back. Idempotent. */
  release(): void;
}

/** The place of a sandbox. */
export interface Place extends Reservation {
  /** What it stands for is being removed: the place is about to be given back. Idempotent. */
  leave(): void;
  /** The removal failed: the place stays taken. */
  stay(): void;
}

/** How long a create waits at most for a place that is being given back. */
const MAX_WAIT_MS = 10_000;

/**
 * How many sandboxes may exist at once. A place is taken before anything is
 * made and given back when what it stood for is gone, so there are never more
 * than the limit. Where all are taken, as many creates as sandboxes are being
 * removed wait for those places, in their order: a removal takes a while, and
 * whoever has just ended a sandbox may have the next one.
 */
export class Capacity {
  readonly limit: number;
  readonly #clock: Clock;
  readonly #waiters: PromiseWithResolvers<Place>[] = [];
  #taken = 0;
  #leaving = 0;

  constructor(limit: number, clock: Clock) {
    this.limit = limit;
    this.#clock = clock;
  }

  get taken(): number {
    return this.#taken;
  }

  /** A place for what is there already, also beyond the limit. */
  recover(): Place {
    this.#taken++;
    return this.#place();
  }

  /** @throws `SANDBOX_LIMIT` when every place is taken and none is given back soon. */
  async reserve(signal: AbortSignal): Promise<Place> {
    throwIfAborted(signal);
    if (this.#taken < this.limit) return this.recover();
    if (this.#waiters.length >= this.#leaving) throw this.#full();
    const waiter = Promise.withResolvers<Place>();
    this.#waiters.push(waiter);
    const cancel = this.#clock.setTimer(MAX_WAIT_MS, () => this.#refuse(waiter, this.#full()));
    const onAbort = (): void => this.#refuse(waiter, abortError(signal));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await waiter.promise;
    } finally {
      cancel();
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Refuses those that wait. */
  close(reason: BerthError): void {
    for (const waiter of [...this.#waiters]) this.#refuse(waiter, reason);
  }

  #place(): Place {
    let held = true;
    let leaving = false;
    const stay = (): void => {
      if (leaving) this.#leaving--;
      leaving = false;
    };
    return {
      leave: () => {
        if (held && !leaving) this.#leaving++;
        leaving = held;
      },
      stay: () => {
        stay();
        const last = this.#waiters.at(-1);
        if (last !== undefined && this.#waiters.length > this.#leaving) this.#refuse(last, this.#full());
      },
      release: () => {
        if (!held) return;
        held = false;
        stay();
        this.#giveBack();
      },
    };
  }

  /** A place goes to whoever waits first, unless there are more than the limit allows. */
  #giveBack(): void {
    const next = this.#taken <= this.limit ? this.#waiters.shift() : undefined;
    if (next === undefined) this.#taken--;
    else next.resolve(this.#place());
  }

  #refuse(waiter: PromiseWithResolvers<Place>, error: BerthError): void {
    const place = this.#waiters.indexOf(waiter);
    if (place < 0) return;
    this.#waiters.splice(place, 1);
    waiter.reject(error);
  }

  #full(): BerthError {
    return new BerthError(
      "SANDBOX_LIMIT",
      `Maximum number of sandboxes (${this.limit}) reached. Delete one, or let the operator raise --max-sandboxes.`,
      { metadata: { limit: String(this.limit) } },
    );
  }
}
