import { type ByteString, fromBytes } from "./byte-string.ts";
import { withoutVanished } from "./failure.ts";
import { type NamedFile, parseStatLine, strangeAnswer } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import { script } from "./script.ts";
import { assign, assignAll } from "./shell-words.ts";
import { SmallestNames } from "./smallest-names.ts";
import { parseRecords, RECORD_FORMAT } from "./stat-records.ts";

/** Entries of a directory in byte order of their names. */
export interface DirectoryPage {
  readonly entries: readonly NamedFile[];
  /** Whether there are entries beyond. */
  readonly more: boolean;
  /** Name of the last entry looked at, from where to go on; undefined for none. */
  readonly last: ByteString | undefined;
}

/** Names whose bytes fit into one script that a lane takes. */
const NAMES_BYTES_PER_SCRIPT = 16 * 1024;

/**
 * Lists the entries of a directory that come after a name. Names are read in
 * one go and kept only as far as they belong to the page; then those are looked
 * at. What goes between the two is left out.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND` and what any path may end in.
 */
export async function listDirectory(
  op: Operation,
  path: ByteString,
  after: ByteString | undefined,
  limit: number,
): Promise<DirectoryPage> {
  const { names, more } = await readNames(op, path, after, limit);
  const found = new Map<ByteString, NamedFile>();
  for (const part of inParts(names)) {
    for (const file of await readFiles(op, path, part)) found.set(file.name, file);
  }
  return { entries: names.flatMap((name) => found.get(name) ?? []), more, last: names.at(-1) };
}

const WANTED = "a directory";

async function readNames(op: Operation, path: ByteString, after: ByteString | undefined, limit: number) {
  const text = script(
    assign("p", path),
    `enter "$p"\n`,
    `need find; find . -mindepth 1 -maxdepth 1 -print0\n`,
  );
  const smallest = new SmallestNames(after, limit + 1);
  const running = await op.start(text);
  for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) {
    smallest.push(fromBytes(chunk));
  }
  const end = await running.ended;
  const onlyVanished = end.code === 1 && end.stderr !== "" && withoutVanished(end.stderr) === "";
  if (!onlyVanished) await op.succeed(running, { path, wanted: WANTED });
  const names = smallest.take();
  return { names: names.slice(0, limit), more: names.length > limit };
}

/** Looks at entries of a directory; those that have gone are left out. */
async function readFiles(
  op: Operation,
  path: ByteString,
  names: readonly ByteString[],
): Promise<NamedFile[]> {
  const text = script(
    assign("p", path),
    `enter "$p"\n`,
    assignAll(names.map((name) => `./${name}`)),
    `need stat; need readlink; stat -c '${RECORD_FORMAT}' "$@" 2>/dev/null\n`,
    `for f do [ ! -L "$f" ] || { printf '\\0%s\\0' "$f"; readlink -n "$f"; }; done\n`,
  );
  const [records = "", ...links] = (await op.run(text, { path, wanted: WANTED })).split("\0");
  if (links.length % 2 !== 0) throw strangeAnswer("readlink");
  const targets = new Map<ByteString, ByteString>();
  for (let index = 0; index < links.length; index += 2) {
    targets.set((links[index] ?? "").slice(2), links[index + 1] ?? "");
  }
  return [...parseRecords(records)].map(({ line, name }) => ({
    name,
    info: parseStatLine(line, targets.get(name)),
  }));
}

function* inParts(names: readonly ByteString[]): Generator<ByteString[]> {
  let part: ByteString[] = [];
  let bytes = 0;
  for (const name of names) {
    if (bytes > 0 && bytes + name.length > NAMES_BYTES_PER_SCRIPT) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(name);
    bytes += name.length + "'./' ".length;
  }
  if (part.length > 0) yield part;
}
