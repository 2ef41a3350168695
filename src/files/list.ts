import { type ByteString, fromBytes } from "../base/byte-string.ts";
import { hasReason } from "../base/errors.ts";
import { noMemory } from "../base/memory-budget.ts";
import type { TurnShare } from "../base/turn-share.ts";
import {
  FIND_ACTIONS,
  type NamedFile,
  parseFindLine,
  parseRecords,
  parseStatLine,
  RECORD_FORMAT,
  strangeAnswer,
} from "./file-info.ts";
import { type Listings, SmallestNames } from "./listings.ts";
import type { Operation } from "./operation.ts";
import { assign, assignAll, inParts, script } from "./script.ts";

/** A page of a directory's entries, in byte order of their names. */
export interface DirectoryPage {
  readonly entries: readonly NamedFile[];
  /** Whether more entries follow. */
  readonly more: boolean;
  /** Name of the last entry read, after which the next page starts; undefined if there was none. */
  readonly last: ByteString | undefined;
}

/** What the lists of all sandboxes share. */
export interface ListParts {
  readonly listings: Listings;
  /** Limits how much parsing blocks the event loop. */
  readonly turns: TurnShare;
}

/** Size of names read ahead for the next pages: many pages. */
const MAX_AHEAD_BYTES = 8 * 1024 * 1024;
/** Size of the names and attributes that are read together: some 1500 entries. */
const MAX_AT_ONCE_BYTES = 128 * 1024;
/** Limit for the attributes of an entry, with the target of a link, which has less than 4 KiB. */
const MAX_ATTRIBUTES_BYTES = 5 * 1024;

/**
 * Lists the entries of a directory after a given name. Reads a small directory at once if the image has GNU find.
 * Otherwise reads all names, keeps those of the next pages in `listings`, and then reads the attributes of this page.
 * Omits entries that vanish in between, and Berth's temporary files.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND` and the errors that any path may cause.
 */
export async function listDirectory(
  op: Operation,
  path: ByteString,
  { after, limit }: { readonly after: ByteString | undefined; readonly limit: number },
  { listings, turns }: ListParts,
): Promise<DirectoryPage> {
  const { scope } = op;
  const known = after === undefined ? undefined : listings.take({ scope, path, after });
  const isEnough = known !== undefined && (known.has(limit) || !known.isCut);
  const found = new Map<ByteString, NamedFile>();
  const rest = isEnough
    ? known
    : ((after === undefined ? await readStart(op, path, found, turns) : undefined) ??
      (await readNames(op, path, after, turns)));
  const names = rest.take(limit);
  const last = names.at(-1);
  const more = last !== undefined && (rest.isCut || rest.has(1));
  for (const part of inParts(names.filter((name) => !found.has(name)))) {
    for (const file of await readFiles(op, path, part, turns)) found.set(file.name, file);
  }
  if (more) listings.keep({ scope, path, after: last }, rest);
  return { entries: names.flatMap((name) => found.get(name) ?? []), more, last };
}

const WANTED = "a directory";
const PRINT_NAMES = "find . -mindepth 1 -maxdepth 1 -print0";

/**
 * Reads a directory from its start: all names, and with GNU find also the attributes, which are added to `found`.
 * Undefined if that is too much at once, or if something fails, which {@link readNames} then reports.
 */
async function readStart(
  op: Operation,
  path: ByteString,
  found: Map<ByteString, NamedFile>,
  turns: TurnShare,
): Promise<SmallestNames | undefined> {
  const nonce = op.temporaryName();
  const answer = await op.run(
    script(
      assign("p", path),
      `enter "$p"; need find; need head\n`,
      `{ find . -mindepth 1 -maxdepth 1 ${FIND_ACTIONS} 2>/dev/null || { printf '\\0${nonce}\\0'; ${PRINT_NAMES} 2>/dev/null; }\n`,
      // At the end only if nothing has failed and this is not cut.
      `[ $? = 0 ] && printf '\\0${nonce}'; } | head -c ${MAX_AT_ONCE_BYTES}\n`,
    ),
    { path, wanted: WANTED },
    { maxBytes: MAX_AT_ONCE_BYTES },
  );
  const end = `\0${nonce}`;
  if (!answer.endsWith(end)) return undefined;
  const turn = turns.enter();
  if (turn) await turn;
  const [records = "", onlyNames] = answer.slice(0, -end.length).split(`${end}\0`);
  const names = new SmallestNames(undefined, MAX_AHEAD_BYTES, (name) => op.isTemporary(name));
  try {
    if (onlyNames !== undefined) names.push(onlyNames);
    else {
      for (const file of parseFound(records)) {
        found.set(file.name, file);
        names.push(`./${file.name}\0`);
      }
    }
    return names;
  } catch (error) {
    if (!hasReason(error, "UNSUPPORTED")) throw error;
    found.clear();
    return undefined;
  }
}

/** Parses the output of find with {@link FIND_ACTIONS}. */
function* parseFound(text: ByteString): Generator<NamedFile> {
  const parts = text.split("\0");
  for (let index = 0; index < parts.length; index += 2) {
    const records = [...parseRecords(parts[index] ?? "")];
    for (const [at, { line, name }] of records.entries()) {
      const target = at === records.length - 1 ? parts[index + 1] : undefined;
      yield { name, info: parseFindLine(line, target) };
    }
  }
}

async function readNames(
  op: Operation,
  path: ByteString,
  after: ByteString | undefined,
  turns: TurnShare,
): Promise<SmallestNames> {
  const text = script(assign("p", path), `enter "$p"\n`, `need find; ${PRINT_NAMES}\n`);
  const smallest = new SmallestNames(after, MAX_AHEAD_BYTES, (name) => op.isTemporary(name));
  let taken = 0;
  const running = await op.start(text);
  for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) {
    const turn = turns.enter();
    if (turn) await turn;
    smallest.push(fromBytes(chunk));
    const more = smallest.bytes - taken;
    if (more > 0 && !op.memory.take(more)) throw noMemory();
    taken += Math.max(more, 0);
  }
  await op.succeedBarVanished(running, { path, wanted: WANTED });
  return smallest;
}

/** Reads attributes of entries of a directory, except those that have vanished. */
async function readFiles(
  op: Operation,
  path: ByteString,
  names: readonly ByteString[],
  turns: TurnShare,
): Promise<NamedFile[]> {
  const text = script(
    assign("p", path),
    `enter "$p"\n`,
    assignAll(names.map((name) => `./${name}`)),
    `need stat; need readlink; stat -c '${RECORD_FORMAT}' "$@" 2>/dev/null\n`,
    `for f do [ ! -L "$f" ] || { printf '\\0%s\\0' "$f"; readlink -n "$f"; }; done\n`,
  );
  const maxBytes = names.reduce((sum, name) => sum + 2 * name.length + MAX_ATTRIBUTES_BYTES, 0);
  const answer = await op.run(text, { path, wanted: WANTED }, { maxBytes });
  const turn = turns.enter();
  if (turn) await turn;
  // A sandbox's own tools may write anything: no more is parsed than these names can have.
  const maxLinks = names.length * 2;
  const [records = "", ...links] = answer.split("\0", 1 + maxLinks + 1);
  if (links.length % 2 !== 0 || links.length > maxLinks) throw strangeAnswer("readlink");
  const targets = new Map<ByteString, ByteString>();
  for (let index = 0; index < links.length; index += 2) {
    targets.set((links[index] ?? "").slice(2), links[index + 1] ?? "");
  }
  const files: NamedFile[] = [];
  for (const { line, name } of parseRecords(records)) {
    if (files.length === names.length) throw strangeAnswer("stat");
    files.push({ name, info: parseStatLine(line, targets.get(name)) });
  }
  return files;
}
