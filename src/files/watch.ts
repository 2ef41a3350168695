import { createHash, hash } from "node:crypto";
import { type ByteString, fromBytes, toBytes, toText } from "../base/byte-string.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason } from "../base/errors.ts";
import { type MemoryShare, noMemory } from "../base/memory-budget.ts";
import type { TurnShare } from "../base/turn-share.ts";
import { statFile } from "./entries.ts";
import { type FileInfo, parseRecords, parseStatLine, RECORD_FORMAT } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { childPath } from "./path.ts";
import { assign, KILLED_CODE, script, scriptError } from "./script.ts";

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
  /** The memory of this watch. */
  readonly memory: MemoryShare;
}

const MAX_FILES = 100_000;
/** Limit for the records of that many files. */
const MAX_BYTES = 64 * 1024 * 1024;
/** The pause after reading a directory is at least this many times as long as the read took. */
const REST_FACTOR = 2;
const WANTED = "a directory";
/** The exit code of xargs if programs failed, here for files that have vanished or are not readable. */
const XARGS_FAILED = 123;
/** The end of the records of a directory, whose own is the last. */
const LAST_RECORD = "//.\n";

/**
 * Reports changes in a directory, by polling it at an interval. Does not report Berth's temporary files. Ends only with
 * an error.
 * @throws `FILE_NOT_FOUND`, also when the directory vanishes; `FILE_KIND`; `UNSUPPORTED` if it contains too much;
 *   `TOO_MANY_OPERATIONS` if there is no memory for what it contains.
 */
export async function* watchDirectory(
  op: Operation,
  path: ByteString,
  options: WatchOptions,
  { clock, turns, memory }: WatchParts,
): AsyncGenerator<WatchItem> {
  const isHidden = (name: ByteString): boolean => op.isTemporary(name);
  // A generator of its own: between two looks, nothing keeps the text and the lines of the last one in memory.
  async function* look(last?: Snapshot): AsyncGenerator<WatchItem, { snapshot: Snapshot; restMs: number }> {
    const begin = clock.monotonicMs();
    const text = await readTree(op, path, options.recursive, memory).catch((error: unknown) => {
      throw last !== undefined && hasReason(error, "FILE_KIND") ? gone(path) : error;
    });
    const scan = await Snapshot.parse(text, { isHidden, turns }, last);
    if (scan === undefined) throw tooLarge(path);
    const { snapshot, changes } = scan;
    const restMs = Math.max(options.intervalMs, (clock.monotonicMs() - begin) * REST_FACTOR);
    if (last === undefined) yield { type: "started", entryCount: snapshot.size };
    else if (snapshot.inode !== last.inode) throw gone(path);
    for (const { type, name, line } of changes) {
      const info = line === undefined ? undefined : await infoOf(op, childPath(path, name), line);
      yield { type, path: name, info, timeMs: clock.wallMs() };
      op.progressed();
    }
    memory.giveBack(text.length + (last?.bytes ?? 0));
    if (!memory.take(snapshot.bytes)) throw noMemory();
    return { snapshot, restMs };
  }
  let { snapshot, restMs } = yield* look();
  while (true) {
    await op.rest(restMs);
    ({ snapshot, restMs } = yield* look(snapshot));
  }
}

/**
 * Reads the records of the directory and everything in it, except what vanishes meanwhile or is not readable. With
 * `-depth` the directory itself comes last, and xargs stops if a `stat` cannot be started or is killed. So without its
 * record some others are missing too.
 */
async function readTree(
  op: Operation,
  path: ByteString,
  recursive: boolean,
  memory: MemoryShare,
): Promise<ByteString> {
  const text = script(
    assign("p", path),
    `enter "$p"; need find; need xargs; need stat\n`,
    `find . ${recursive ? "" : "-maxdepth 1 "}-depth -print0 | xargs -0 stat -c '${RECORD_FORMAT}' || [ $? = ${XARGS_FAILED} ]\n`,
  );
  const running = await op.start(text);
  const records = await running.readAll(
    MAX_BYTES,
    () => tooLarge(path),
    (bytes) => (memory.take(bytes) ? undefined : noMemory()),
  );
  const found = fromBytes(records);
  if (found.endsWith(LAST_RECORD)) return found;
  const subject = { path, wanted: WANTED };
  await op.succeed(running, subject);
  // xargs came to the end of the names, but find did not.
  throw scriptError(subject, { code: KILLED_CODE, stderr: "" });
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

/** What a look at a directory found. */
interface Scan {
  readonly snapshot: Snapshot;
  /** The changes since the previous look: removed files first, then the rest, each sorted by name. */
  readonly changes: readonly Difference[];
}

/** What is remembered of a directory's contents at one moment: the name of each file, and a mark of its line from `stat`. */
export class Snapshot {
  readonly #digest: string;
  readonly #marks: ReadonlyMap<ByteString, number>;
  /** The directory's inode number. */
  readonly inode: string | undefined;
  /** About how much memory it takes. */
  readonly bytes: number;

  private constructor(
    digest: string,
    marks: ReadonlyMap<ByteString, number>,
    inode: string | undefined,
    bytes: number,
  ) {
    this.#digest = digest;
    this.#marks = marks;
    this.inode = inode;
    this.bytes = bytes;
  }

  /**
   * @param text records of the directory and everything in it
   * @param last the previous snapshot. Undefined: there are no changes to it. Equal text is not parsed again.
   * @returns undefined if there are more than {@link MAX_FILES}
   */
  static async parse(
    text: ByteString,
    { isHidden, turns }: SnapshotOptions,
    last?: Snapshot,
  ): Promise<Scan | undefined> {
    const digest = await digestOf(text, turns);
    if (last !== undefined && last.#digest === digest) return { snapshot: last, changes: [] };
    const earlier = last === undefined ? undefined : last.#marks;
    const marks = new Map<ByteString, number>();
    const rest: Difference[] = [];
    let inode: string | undefined;
    let bytes = 0;
    for (const { name, line } of parseRecords(text)) {
      const turn = turns.enter();
      if (turn) await turn;
      if (isHidden(name)) continue;
      if (name === ROOT) {
        inode = copyOf(line.split(" ")[INODE] ?? "");
        continue;
      }
      const mark = markOf(line);
      marks.set(copyOf(name), mark);
      bytes += name.length + ENTRY_BYTES;
      if (marks.size > MAX_FILES) return undefined;
      const before = earlier?.get(name);
      if (earlier === undefined || before === mark) continue;
      const isNew = before === undefined || kindOf(before) !== kindOf(mark);
      rest.push({ type: isNew ? "CREATED" : "MODIFIED", name, line });
    }
    const gone: Difference[] = [];
    for (const [name, mark] of earlier ?? []) {
      const turn = turns.enter();
      if (turn) await turn;
      const now = marks.get(name);
      if (now === undefined || kindOf(now) !== kindOf(mark))
        gone.push({ type: "REMOVED", name, line: undefined });
    }
    const changes = [...(await sorted(gone, turns)), ...(await sorted(rest, turns))];
    return { snapshot: new Snapshot(digest, marks, inode, bytes), changes };
  }

  /** Number of files, without the directory itself. */
  get size(): number {
    return this.#marks.size;
  }
}

/** What an entry of a snapshot takes besides its name. */
const ENTRY_BYTES = 100;
const DIGEST_AT_ONCE = 256 * 1024;
/** Sorting as many takes a few milliseconds. */
const SORTED_AT_ONCE = 1024;
const ROOT = ".";
const INODE = 4;
const DIRECTORY = 0o04;
const KINDS = 16;

async function digestOf(text: ByteString, turns: TurnShare): Promise<string> {
  const digest = createHash("sha256");
  for (let at = 0; at < text.length; at += DIGEST_AT_ONCE) {
    const turn = turns.enter();
    if (turn) await turn;
    digest.update(text.slice(at, at + DIGEST_AT_ONCE), "latin1");
  }
  return digest.digest("base64");
}

/** A string with memory of its own: a part of a text keeps all of it in memory. */
function copyOf(part: ByteString): ByteString {
  return fromBytes(toBytes(part));
}

/**
 * The kind of a file, and 48 bits that are most likely others if its line is. They ignore the size and time of a directory,
 * which change with its entries: these are compared separately.
 */
function markOf(line: string): number {
  // It starts with the mode in hexadecimal.
  const kind = (Number.parseInt(line, 16) >> 12) & (KINDS - 1);
  const fields = line.split(" ");
  const told = kind === DIRECTORY ? [0, 2, 3, INODE].map((field) => fields[field]).join(" ") : line;
  return hash("sha1", told, "buffer").readUIntBE(0, 6) * KINDS + kind;
}

function kindOf(mark: number): number {
  return mark % KINDS;
}

/** Sorts a few at a time, and merges the sorted parts. */
async function sorted(all: readonly Difference[], turns: TurnShare): Promise<Difference[]> {
  let parts = [...all];
  for (let at = 0; at < all.length; at += SORTED_AT_ONCE) {
    const turn = turns.enter();
    if (turn) await turn;
    parts.splice(at, SORTED_AT_ONCE, ...all.slice(at, at + SORTED_AT_ONCE).sort(byName));
  }
  for (let length = SORTED_AT_ONCE; length < all.length; length *= 2) {
    const merged: Difference[] = [];
    for (let from = 0; from < all.length; from += 2 * length) {
      const [middle, end] = [from + length, Math.min(from + 2 * length, all.length)];
      for (let [left, right] = [from, middle]; merged.length < end; ) {
        const turn = turns.enter();
        if (turn) await turn;
        const [one, other] = [parts[left], parts[right]];
        const isLeft = left < middle && (right >= end || byName(one as Difference, other as Difference) < 0);
        merged.push((isLeft ? one : other) as Difference);
        if (isLeft) left++;
        else right++;
      }
    }
    parts = merged;
  }
  return parts;
}

function byName(a: Difference, b: Difference): number {
  return a.name < b.name ? -1 : 1;
}
