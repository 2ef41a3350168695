import type { ByteString } from "../base/byte-string.ts";
import { parseRecords } from "./stat-records.ts";

/** What is different about a file between two looks. */
export interface Difference {
  readonly type: "CREATED" | "MODIFIED" | "REMOVED";
  readonly name: ByteString;
  /** What `stat` tells of it now; undefined for REMOVED. */
  readonly line: string | undefined;
}

/** What was in a directory at one moment: for each file what `stat` tells of it. */
export class Snapshot {
  readonly #text: ByteString;
  readonly #lines: ReadonlyMap<ByteString, string>;

  /**
   * @param text records of the directory and all in it
   * @param last the look before; what says the same is not read again
   */
  constructor(text: ByteString, last?: Snapshot) {
    this.#text = text;
    this.#lines =
      last !== undefined && last.#text === text
        ? last.#lines
        : new Map(Array.from(parseRecords(text), ({ name, line }) => [name, line]));
  }

  /** Files, without the directory itself. */
  get size(): number {
    return this.#lines.size - (this.#lines.has(ROOT) ? 1 : 0);
  }

  /** Names the directory itself in its file system. */
  get inode(): string | undefined {
    return this.#lines.get(ROOT)?.split(" ")[INODE];
  }

  /** What changed since an earlier look: what went first, then the rest, each in order of the names. */
  since(earlier: Snapshot): Difference[] {
    if (earlier.#lines === this.#lines) return [];
    const gone: Difference[] = [];
    const rest: Difference[] = [];
    for (const [name, line] of earlier.#lines) {
      const now = this.#lines.get(name);
      if (now === undefined || kindOf(now) !== kindOf(line))
        gone.push({ type: "REMOVED", name, line: undefined });
    }
    for (const [name, line] of this.#lines) {
      const before = earlier.#lines.get(name);
      if (name === ROOT || before === line) continue;
      if (before === undefined || kindOf(before) !== kindOf(line)) rest.push({ type: "CREATED", name, line });
      else if (hasChanged(before, line)) rest.push({ type: "MODIFIED", name, line });
    }
    return [...gone.sort(byName), ...rest.sort(byName)];
  }
}

const ROOT = ".";
const INODE = 4;
const DIRECTORY = 0o04;

/** The bits of a mode that tell the kind, from a line that begins with the mode in hexadecimal. */
function kindOf(line: string): number {
  return Number.parseInt(line, 16) >> 12;
}

/** Of a directory, size and time tell of its entries, which are looked at themselves. */
function hasChanged(before: string, after: string): boolean {
  if (kindOf(after) !== DIRECTORY) return true;
  const [a, b] = [before.split(" "), after.split(" ")];
  return [0, 2, 3, INODE].some((field) => a[field] !== b[field]);
}

function byName(a: Difference, b: Difference): number {
  return a.name < b.name ? -1 : 1;
}
