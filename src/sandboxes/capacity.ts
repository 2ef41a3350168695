import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";

/** A share of a limit, held until it is released. */
export interface Reservation {
  /** Releases the share. Idempotent. */
  release(): void;
}

/** One sandbox's share of the capacity. */
export interface Place extends Reservation {
  /** Call this when the sandbox is being removed, so its place will be released soon. Idempotent. */
  leave(): void;
  /** Call this when the removal has failed, so the place stays taken. */
  stay(): void;
}

/** The place of a sandbox that has ended. */
export const NO_PLACE: Place = { leave: () => {}, stay: () => {}, release: () => {} };

/** A place that also releases a tenant's share. */
export function withShare(place: Place, share: Reservation): Place {
  return {
    ...place,
    release: () => {
      share.release();
      place.release();
    },
  };
}

/** How long a create waits at most for a place that will be released soon. */
const MAX_WAIT_MS = 10_000;

/**
 * Limits how many sandboxes exist at once. A place is taken before anything is created, and released when the sandbox
 * is gone, so the limit is never exceeded. If all places are taken, as many creates as there are removals in progress
 * may wait, first come, first served. A removal takes a while, so this lets a caller that has just deleted a sandbox
 * create the next one.
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

  /** Takes a place for a sandbox that already exists, even beyond the limit. */
  recover(): Place {
    this.#taken++;
    return this.#place();
  }

  /** @throws `SANDBOX_LIMIT` if every place is taken and none is released within 10 s. */
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

  /** Passes the place to the first waiter, unless more places are taken than the limit allows. */
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
