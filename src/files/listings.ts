import { type ByteString, fromBytes, toBytes } from "../base/byte-string.ts";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { strangeAnswer } from "./file-info.ts";

/** Limit for all kept names together. */
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_LISTINGS = 1000;
/** How long names are kept for the request of the next page. */
const KEPT_MS = 60_000;

/** The position of a listing: the next page starts after the last name of the previous page. */
interface Position {
  /** The sandbox's container, and the user. */
  readonly scope: string;
  readonly path: ByteString;
  readonly after: ByteString;
}

/**
 * Keeps the names for the next pages of directory listings, so that a page need not read the whole directory again.
 * Beyond the limits the oldest are dropped, and read again when needed.
 */
export class Listings {
  readonly #clock: Clock;
  /** By position, oldest first. */
  readonly #kept = new Map<string, { readonly names: SmallestNames; readonly untilMs: number }>();
  #bytes = 0;
  #cancelTimer: CancelTimer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes the names after a position; undefined if they are not kept. */
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

  /** Drops names that were not requested in time. */
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

/** How many names to sort at once, which takes a few milliseconds. */
const RUN_LENGTH = 4096;
/** Overhead of a name in addition to its bytes. */
const NAME_BYTES = 32;
/** The start of each path from `find .`. */
const START = "./";
/** Paths from `find .` are far shorter. */
const MAX_PATH_BYTES = 4096;

/** Sorted names, of which the first ones have been taken. */
interface Run {
  names: ByteString[];
  taken: number;
}

/**
 * Reads the output of `find . -print0` as a stream, and returns the names after a given one in byte order. Keeps only a
 * limited number of bytes: beyond that it drops the larger half of the names, so that memory does not grow with the
 * directory.
 */
export class SmallestNames {
  readonly #maxBytes: number;
  readonly #isHidden: (name: ByteString) => boolean;
  #last: ByteString | undefined;
  #runs: Run[] = [];
  /** Not sorted yet. */
  #fresh: ByteString[] = [];
  #bytes = 0;
  /** Start of a name whose end has not arrived yet. */
  #rest = "";
  /** Names from this one on are not kept. */
  #limit: ByteString | undefined;

  /** @param isHidden whether to omit a name */
  constructor(
    after: ByteString | undefined,
    maxBytes: number,
    isHidden: (name: ByteString) => boolean = () => false,
  ) {
    this.#last = after;
    this.#maxBytes = maxBytes;
    this.#isHidden = isHidden;
  }

  /** Approximate size of the names it keeps. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether it has dropped following names, which must be read again, after the last one taken. */
  get isCut(): boolean {
    return this.#limit !== undefined;
  }

  /** Takes the next piece of output. @throws `UNSUPPORTED` for anything that is not a name. */
  push(text: ByteString): void {
    const paths = (this.#rest + text).split("\0");
    this.#rest = paths.pop() ?? "";
    if (this.#rest.length > MAX_PATH_BYTES) throw strangeAnswer("find");
    for (const path of paths) {
      if (!path.startsWith(START)) throw strangeAnswer("find");
      const name = path.slice(START.length);
      if (this.#last !== undefined && name <= this.#last) continue;
      if (this.#limit !== undefined && name >= this.#limit) continue;
      if (this.#isHidden(name)) continue;
      // Copy the name: a substring keeps the whole text in memory.
      this.#fresh.push(fromBytes(toBytes(name)));
      this.#bytes += name.length + NAME_BYTES;
      if (this.#fresh.length === RUN_LENGTH) this.#sort();
    }
  }

  /** Returns the next names in order, or fewer if it keeps no more. Do not push afterwards. */
  take(count: number): ByteString[] {
    this.#sort();
    const names: ByteString[] = [];
    for (let run = this.#first(); run !== undefined && names.length < count; run = this.#first()) {
      const name = run.names[run.taken] ?? "";
      run.taken++;
      this.#bytes -= name.length + NAME_BYTES;
      if (name === this.#last) continue;
      names.push(name);
      this.#last = name;
    }
    for (const run of this.#runs) {
      run.names.splice(0, run.taken);
      run.taken = 0;
    }
    return names;
  }

  /** Whether it keeps at least this many names that were not taken. */
  has(count: number): boolean {
    return (
      this.#runs.reduce((sum, { names, taken }) => sum + names.length - taken, this.#fresh.length) >= count
    );
  }

  /** The run whose next name comes first. */
  #first(): Run | undefined {
    let first: Run | undefined;
    for (const run of this.#runs) {
      if (run.taken === run.names.length) continue;
      if (first === undefined || nextOf(run) < nextOf(first)) first = run;
    }
    return first;
  }

  #sort(): void {
    if (this.#fresh.length > 0) this.#runs.push({ names: this.#fresh.sort(), taken: 0 });
    this.#fresh = [];
    while (this.#bytes > this.#maxBytes && this.#cut());
  }

  /** Drops about the larger half of the names; false if that is impossible. */
  #cut(): boolean {
    const middles = this.#runs.map(({ names }) => names[names.length >> 1] ?? "").sort();
    const limit = middles[middles.length >> 1] ?? "";
    const before = this.#bytes;
    for (const run of this.#runs) {
      const kept = countBelow(run.names, limit);
      for (const name of run.names.splice(kept)) this.#bytes -= name.length + NAME_BYTES;
    }
    this.#runs = this.#runs.filter(({ names }) => names.length > 0);
    this.#limit = limit;
    return this.#bytes < before && this.#runs.length > 0;
  }
}

function nextOf({ names, taken }: Run): ByteString {
  return names[taken] ?? "";
}

/** How many of these sorted names come before `limit`. */
function countBelow(names: readonly ByteString[], limit: ByteString): number {
  let [low, high] = [0, names.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((names[middle] ?? "") < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
