import { type ByteString, fromBytes, toBytes } from "../base/byte-string.ts";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { strangeAnswer } from "./file-info.ts";

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

/** So many names are sorted at once: a few milliseconds. */
const RUN_LENGTH = 4096;
/** What a name takes beside its bytes. */
const NAME_BYTES = 32;
/** A path of `find .` is far shorter. */
const MAX_PATH_BYTES = 4096;

/** Names in order, of which the first ones are taken already. */
interface Run {
  names: ByteString[];
  taken: number;
}

/**
 * Takes the output of `find . -print0` as it comes, and gives the names after a
 * given one out in byte order. It keeps as many as may lie in memory: past that,
 * the larger half goes, so that memory does not grow with the directory.
 */
export class SmallestNames {
  readonly #mostBytes: number;
  #last: ByteString | undefined;
  #runs: Run[] = [];
  /** Not sorted yet. */
  #fresh: ByteString[] = [];
  #bytes = 0;
  /** Begin of a name whose end has not come yet. */
  #rest = "";
  /** Names from here on are not kept. */
  #limit: ByteString | undefined;

  constructor(after: ByteString | undefined, mostBytes: number) {
    this.#last = after;
    this.#mostBytes = mostBytes;
  }

  /** What it keeps, about. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether names follow that it does not keep: to be read again, after the last one taken. */
  get isCut(): boolean {
    return this.#limit !== undefined;
  }

  /** Takes the next piece of output. @throws `UNSUPPORTED` for what is no name. */
  push(text: ByteString): void {
    const paths = (this.#rest + text).split("\0");
    this.#rest = paths.pop() ?? "";
    if (this.#rest.length > MAX_PATH_BYTES) throw strangeAnswer("find");
    for (const path of paths) {
      const name = path.slice("./".length);
      if (this.#last !== undefined && name <= this.#last) continue;
      if (this.#limit !== undefined && name >= this.#limit) continue;
      // A copy: a part of a text keeps all of it in memory.
      this.#fresh.push(fromBytes(toBytes(name)));
      this.#bytes += name.length + NAME_BYTES;
      if (this.#fresh.length === RUN_LENGTH) this.#sort();
    }
  }

  /** The next names, in order; fewer where that is all that it keeps. Nothing is to be pushed any more. */
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
    return names;
  }

  /** Whether it keeps so many names that were not taken. */
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
    while (this.#bytes > this.#mostBytes && this.#cut());
  }

  /** Drops about the larger half; false where there is nothing to part. */
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

/** How many of these names, which are in order, come before another. */
function countBelow(names: readonly ByteString[], limit: ByteString): number {
  let [low, high] = [0, names.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((names[middle] ?? "") < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
