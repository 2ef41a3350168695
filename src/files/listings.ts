import type { ByteString } from "../base/byte-string.ts";
import type { CancelTimer, Clock } from "../base/clock.ts";
import type { SmallestNames } from "./smallest-names.ts";

/** All kept names together. */
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_LISTINGS = 1000;
/** How long the names wait for the next page to be asked for. */
const KEPT_MS = 60_000;

/** Where a listing is: the next page begins after the last name of the page before. */
export interface Position {
  /** The sandbox's life, and as whom. */
  readonly scope: string;
  readonly path: ByteString;
  readonly after: ByteString;
}

/**
 * The names that listings of directories have still to show, so that a page
 * need not read the whole directory again. What is not here any more is read
 * again: the oldest give way.
 */
export class Listings {
  readonly #clock: Clock;
  /** By position, the oldest first. */
  readonly #kept = new Map<string, { readonly names: SmallestNames; readonly untilMs: number }>();
  #bytes = 0;
  #cancelTimer: CancelTimer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The names after a position, which are then the caller's; undefined: they are not known. */
  take(position: Position): SmallestNames | undefined {
    const key = keyOf(position);
    const kept = this.#kept.get(key);
    if (kept !== undefined) this.#drop(key, kept.names);
    return kept?.names;
  }

  /** Keeps the names after a position for the next page. */
  keep(position: Position, names: SmallestNames): void {
    this.take(position);
    this.#kept.set(keyOf(position), { names, untilMs: this.#clock.monotonicMs() + KEPT_MS });
    this.#bytes += names.bytes;
    for (const [key, oldest] of this.#kept) {
      if (this.#bytes <= MAX_BYTES && this.#kept.size <= MAX_LISTINGS) break;
      this.#drop(key, oldest.names);
    }
    this.#wait();
  }

  #drop(key: string, names: SmallestNames): void {
    this.#kept.delete(key);
    this.#bytes -= names.bytes;
  }

  /** Drops what nobody asked for, when its time is over. */
  #wait(): void {
    if (this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#clock.setTimer(KEPT_MS, () => {
      this.#cancelTimer = undefined;
      const now = this.#clock.monotonicMs();
      for (const [key, { names, untilMs }] of this.#kept) if (untilMs <= now) this.#drop(key, names);
      if (this.#kept.size > 0) this.#wait();
    });
  }
}

function keyOf({ scope, path, after }: Position): string {
  return JSON.stringify([scope, path, after]);
}
