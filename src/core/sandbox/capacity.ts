import { BerthError } from "../errors.ts";

/** A place that was taken. Giving it back twice gives it back once. */
export interface Reservation {
  release(): void;
}

/**
 * How many sandboxes may exist at once. A place is taken before anything is
 * made and given back when what it stood for is gone.
 */
export class Capacity {
  readonly limit: number;
  #taken = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get taken(): number {
    return this.#taken;
  }

  /** A place for what is there already, also beyond the limit. */
  retake(): Reservation {
    return this.#take();
  }

  /** @throws `SANDBOX_LIMIT` when every place is taken. */
  reserve(): Reservation {
    if (this.#taken >= this.limit) {
      throw new BerthError(
        "SANDBOX_LIMIT",
        `Maximum number of sandboxes (${this.limit}) reached. Delete one, or let the operator raise --max-sandboxes.`,
        { metadata: { limit: String(this.limit) } },
      );
    }
    return this.#take();
  }

  #take(): Reservation {
    this.#taken++;
    let held = true;
    return {
      release: () => {
        if (held) this.#taken--;
        held = false;
      },
    };
  }
}
