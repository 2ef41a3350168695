import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";

/** A share of a limit, held until it is released. */
export interface Reservation {
  /** Gives the share back. Idempotent. */
  release(): void;
}

/** One sandbox's share of the capacity. */
export interface Place extends Reservation {
  /** The sandbox is being removed: its place is about to be given back. Idempotent. */
  leave(): void;
  /** The removal failed: the place stays taken. */
  stay(): void;
}

/** The place of a sandbox that has ended. */
export const NO_PLACE: Place = { leave: () => {}, stay: () => {}, release: () => {} };

/** A place that gives back a tenant's share with itself. */
export function withShare(place: Place, share: Reservation): Place {
  return {
    ...place,
    release: () => {
      share.release();
      place.release();
    },
  };
}

/** How long a create waits at most for a place that is being given back. */
const MAX_WAIT_MS = 10_000;

/**
 * How many sandboxes may exist at once. A place is taken before anything is
 * made and given back when the sandbox is gone, so there are never more than
 * the limit. Where all places are taken, as many creates may wait as sandboxes
 * are being removed, in their order: a removal takes a while, and a caller that
 * has just deleted a sandbox can then create the next one.
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

  /** A place for a sandbox that exists already, also beyond the limit. */
  recover(): Place {
    this.#taken++;
    return this.#place();
  }

  /** @throws `SANDBOX_LIMIT` when every place is taken and none is given back within 10 s. */
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

  /** Rejects the creates that wait. */
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

  /** Passes the place to the first waiter, unless more are taken than the limit allows. */
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
      `Maximum number of sandboxes (${this.limit}) reached. Delete one, or ask the operator to raise --max-sandboxes.`,
      { metadata: { limit: String(this.limit) } },
    );
  }
}
