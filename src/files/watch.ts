import { type ByteString, fromBytes, toText } from "../base/byte-string.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason } from "../base/errors.ts";
import type { TurnShare } from "../base/turn-share.ts";
import { statFile } from "./entries.ts";
import { type FileInfo, parseRecords, parseStatLine, RECORD_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { childPath } from "./path.ts";
import { assign, script } from "./script.ts";

/** Options of a watch. */
export interface WatchOptions {
  /** Whether to watch subdirectories too. Symbolic links are not followed. */
  readonly recursive: boolean;
  readonly intervalMs: number;
}

export type ChangeType = Difference["type"];

/** What a watch reports. */
export type WatchItem =
  | { readonly type: "started"; readonly entryCount: number }
  | {
      readonly type: ChangeType;
      /** Relative to the watched directory. */
      readonly path: ByteString;
      /** Attributes after the change; undefined for REMOVED. */
      readonly info: FileInfo | undefined;
      /** When the change was seen, in wall time in milliseconds. */
      readonly timeMs: number;
    };

/** What the watches of all sandboxes share. */
interface WatchParts {
  readonly clock: Clock;
  /** Limits how much parsing and comparing blocks the event loop. */
  readonly turns: TurnShare;
}

const MAX_FILES = 100_000;
/** Limit for the records of that many files. */
const MAX_BYTES = 64 * 1024 * 1024;
/** The pause after reading a directory is at least this many times as long as the read took. */
const REST_FACTOR = 2;
const WANTED = "a directory";

/**
 * Reports changes in a directory, by polling it at an interval. Does not report Berth's temporary files. Ends only with
 * an error.
 * @throws `FILE_NOT_FOUND`, also when the directory vanishes; `FILE_KIND`; `UNSUPPORTED` if it contains too much.
 */
export async function* watchDirectory(
  op: Operation,
  path: ByteString,
  options: WatchOptions,
  { clock, turns }: WatchParts,
): AsyncGenerator<WatchItem> {
  const isHidden = (name: ByteString): boolean => op.isTemporary(name);
  const look = async (earlier?: Snapshot) => {
    const begin = clock.monotonicMs();
    const text = await readTree(op, path, options.recursive);
    const snapshot = await Snapshot.parse(text, { isHidden, turns }, earlier);
    if (snapshot === undefined) throw tooLarge(path);
    return { snapshot, restMs: Math.max(options.intervalMs, (clock.monotonicMs() - begin) * REST_FACTOR) };
  };
  let { snapshot: last, restMs } = await look();
  yield { type: "started", entryCount: last.size };
  while (true) {
    await op.rest(restMs);
    const next = await look(last).catch((error: unknown) => {
      throw hasReason(error, "FILE_KIND") ? gone(path) : error;
    });
    if (next.snapshot.inode !== last.inode) throw gone(path);
    for (const { type, name, line } of await next.snapshot.since(last)) {
      const info = line === undefined ? undefined : await infoOf(op, childPath(path, name), line);
      yield { type, path: name, info, timeMs: clock.wallMs() };
      op.progressed();
    }
    last = next.snapshot;
    restMs = next.restMs;
  }
}

/** Reads the records of the directory and everything in it, except what vanishes meanwhile or is not readable. */
async function readTree(op: Operation, path: ByteString, recursive: boolean): Promise<ByteString> {
  const text = script(
    assign("p", path),
    `enter "$p"; need find; need stat\n`,
    `find . ${recursive ? "" : "-maxdepth 1 "}-exec stat -c '${RECORD_FORMAT}' {} +\n`,
  );
  const running = await op.start(text);
  const records = await running.readAll(MAX_BYTES, () => tooLarge(path));
  if (records.length === 0) {
    await op.succeed(running, { path, wanted: WANTED });
    throw gone(path);
  }
  return fromBytes(records);
}

/** Attributes of a changed file. The target of a symbolic link takes another script. */
async function infoOf(op: Operation, path: ByteString, line: string): Promise<FileInfo> {
  const info = parseStatLine(line);
  if (info.kind !== "SYMLINK") return info;
  return statFile(op, path, false).catch((error: unknown) => {
    if (hasReason(error, "FILE_NOT_FOUND")) return info;
    throw error;
  });
}

function tooLarge(path: ByteString): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `${JSON.stringify(toText(path))}: the directory holds more than ${MAX_FILES} files. Watch a part of it.`,
    { metadata: { limit: String(MAX_FILES) } },
  );
}

function gone(path: ByteString): BerthError {
  return new BerthError("FILE_NOT_FOUND", `${JSON.stringify(toText(path))}: the directory no longer exists.`);
}

/** A difference of a file between two snapshots. */
interface Difference {
  readonly type: "CREATED" | "MODIFIED" | "REMOVED";
  readonly name: ByteString;
  /** Its current line from `stat`; undefined for REMOVED. */
  readonly line: string | undefined;
}

interface SnapshotOptions {
  /** Whether to omit a name. */
  readonly isHidden: (name: ByteString) => boolean;
  readonly turns: TurnShare;
}

/** The contents of a directory at one moment: the line from `stat` of each file. */
export class Snapshot {
  readonly #text: ByteString;
  readonly #lines: ReadonlyMap<ByteString, string>;
  readonly #turns: TurnShare;

  private constructor(text: ByteString, lines: ReadonlyMap<ByteString, string>, turns: TurnShare) {
    this.#text = text;
    this.#lines = lines;
    this.#turns = turns;
  }

  /**
   * @param text records of the directory and everything in it
   * @param last the previous snapshot; equal text is not parsed again
   * @returns undefined if there are more than {@link MAX_FILES}
   */
  static async parse(
    text: ByteString,
    { isHidden, turns }: SnapshotOptions,
    last?: Snapshot,
  ): Promise<Snapshot | undefined> {
    if (last !== undefined && last.#text === text) return last;
    const lines = new Map<ByteString, string>();
    for (const { name, line } of parseRecords(text)) {
      const turn = turns.enter();
      if (turn) await turn;
      if (isHidden(name)) continue;
      lines.set(name, line);
      if (lines.size > MAX_FILES + 1) return undefined;
    }
    return new Snapshot(text, lines, turns);
  }

  /** Number of files, without the directory itself. */
  get size(): number {
    return this.#lines.size - (this.#lines.has(ROOT) ? 1 : 0);
  }

  /** The directory's inode number. */
  get inode(): string | undefined {
    return this.#lines.get(ROOT)?.split(" ")[INODE];
  }

  /** The changes since an earlier snapshot: removed files first, then the rest, each sorted by name. */
  async since(earlier: Snapshot): Promise<Difference[]> {
    if (earlier.#lines === this.#lines) return [];
    const gone: Difference[] = [];
    const rest: Difference[] = [];
    for (const [name, line] of earlier.#lines) {
      const turn = this.#turns.enter();
      if (turn) await turn;
      const now = this.#lines.get(name);
      if (now === undefined || kindOf(now) !== kindOf(line))
        gone.push({ type: "REMOVED", name, line: undefined });
    }
    for (const [name, line] of this.#lines) {
      const turn = this.#turns.enter();
      if (turn) await turn;
      const before = earlier.#lines.get(name);
      if (name === ROOT || before === line) continue;
      if (before === undefined || kindOf(before) !== kindOf(line)) rest.push({ type: "CREATED", name, line });
      else if (hasChanged(before, line)) rest.push({ type: "MODIFIED", name, line });
    }
    return [...(await this.#sorted(gone)), ...(await this.#sorted(rest))];
  }

  /** Sorts a few at a time, and merges the sorted parts. */
  async #sorted(all: readonly Difference[]): Promise<Difference[]> {
    let sorted = [...all];
    for (let at = 0; at < all.length; at += SORTED_AT_ONCE) {
      const turn = this.#turns.enter();
      if (turn) await turn;
      sorted.splice(at, SORTED_AT_ONCE, ...all.slice(at, at + SORTED_AT_ONCE).sort(byName));
    }
    for (let length = SORTED_AT_ONCE; length < all.length; length *= 2) {
      const merged: Difference[] = [];
      for (let from = 0; from < all.length; from += 2 * length) {
        const [middle, end] = [from + length, Math.min(from + 2 * length, all.length)];
        for (let [left, right] = [from, middle]; merged.length < end; ) {
          const turn = this.#turns.enter();
          if (turn) await turn;
          const [one, other] = [sorted[left], sorted[right]];
          const isLeft =
            left < middle && (right >= end || byName(one as Difference, other as Difference) < 0);
          merged.push((isLeft ? one : other) as Difference);
          if (isLeft) left++;
          else right++;
        }
      }
      sorted = merged;
    }
    return sorted;
  }
}

/** Takes a few milliseconds. */
const SORTED_AT_ONCE = 1024;
const ROOT = ".";
const INODE = 4;
const DIRECTORY = 0o04;

/** The kind of a file, from a line that starts with the mode in hexadecimal. */
function kindOf(line: string): number {
  return Number.parseInt(line, 16) >> 12;
}

/** Ignores the size and time of a directory, which change with its entries: these are compared separately. */
function hasChanged(before: string, after: string): boolean {
  if (kindOf(after) !== DIRECTORY) return true;
  const [a, b] = [before.split(" "), after.split(" ")];
  return [0, 2, 3, INODE].some((field) => a[field] !== b[field]);
}

function byName(a: Difference, b: Difference): number {
  return a.name < b.name ? -1 : 1;
}
