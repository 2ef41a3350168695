import { type ByteString, toBytes, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { quote } from "../base/shell-quote.ts";
import { TurnShare } from "../base/turn-share.ts";
import { ArchiveCheck } from "./archive-check.ts";
import type { Operation } from "./operation.ts";
import { assign, EXIT, script, scriptError } from "./script.ts";
import type { PlainTarEntry, SparseMap } from "./tar/tar-entry.ts";
import { readTar } from "./tar/tar-reader.ts";
import { END_OF_TAR, encodeEntry, gather, padding } from "./tar/tar-writer.ts";
import { until } from "./until.ts";

/** Small pieces are joined into chunks of this size. */
const CHUNK_BYTES = 64 * 1024;

/** The result of unpacking. */
export interface UnpackedArchive {
  /** Number of entries, including directories and links. */
  readonly entryCount: number;
  /** Total bytes of regular files. */
  readonly sizeBytes: number;
}

/**
 * Unpacks a tar into a directory. Each entry is checked and rewritten, so that the image's tar reads only what this
 * module wrote. The tar is unpacked into a temporary directory next to the target, and moved into place once it is
 * complete.
 * @throws `ARCHIVE_REJECTED`, `FILE_NOT_FOUND`, `FILE_KIND`, `UNSUPPORTED` without tar, `NO_SPACE`,
 *   `TOO_MANY_OPERATIONS` if there is no memory for its names, and errors of `chunks`. Nothing is unpacked then, unless
 *   moving into place fails.
 */
export async function uploadArchive(
  op: Operation,
  path: ByteString,
  chunks: AsyncIterable<Uint8Array>,
  createParents: boolean,
): Promise<UnpackedArchive> {
  const nonce = op.temporaryName();
  const running = await op.start(unpackScript(path, createParents, nonce), { stdin: true });
  const check = new ArchiveCheck((bytes) => op.memory.take(bytes));
  try {
    for await (const chunk of gather(
      rewriteArchive(until(progressing(op, chunks), running.ended), check, nonce),
      CHUNK_BYTES,
    )) {
      if (running.over) break;
      await running.write(chunk);
    }
    running.closeStdin();
    op.progressed();
    while ((await running.read()) !== undefined);
    const end = await running.ended;
    if (end.code !== 0) throw unpackError(path, end);
  } catch (error) {
    // If the script has ended by itself, that caused the failure of the upload.
    const end = running.over && !op.signal.aborted ? await running.ended : undefined;
    const cause = end !== undefined && end.code !== 0 ? unpackError(path, end) : error;
    await op.abandon(
      running,
      script(assign("p", path), `cd "$p" || exit 0; t=${nonce}; ${REMOVE_TEMPORARY}\n`),
    );
    throw cause;
  }
  return { entryCount: check.entryCount, sizeBytes: check.sizeBytes };
}

async function* progressing<T>(op: Operation, items: AsyncIterable<T>): AsyncGenerator<T> {
  for await (const item of items) {
    op.progressed();
    yield item;
  }
}

/**
 * Checks every entry and rewrites it in a dialect that small tars can read too. Appends a marker as the last entry,
 * which proves that the archive is complete.
 */
export async function* rewriteArchive(
  chunks: AsyncIterable<Uint8Array>,
  check: ArchiveCheck,
  nonce: string,
): AsyncGenerator<Buffer> {
  const holes = new LateHoles();
  const modes = new LateModes();
  let size = 0;
  for await (const item of readTar(chunks)) {
    if (item.type === "content") {
      yield item.data;
      continue;
    }
    yield padding(size);
    size = item.entry.size;
    for (const entry of check.admit(item.entry)) yield encodeEntry(modes.open(holes.close(entry)), "gnu");
  }
  yield padding(size);
  const script = [...(await joined(holes.script())), ...(await joined(modes.script()))];
  const scriptBytes = script.reduce((sum, { length }) => sum + length, 0);
  yield encodeEntry(markEntry(nonce, scriptBytes), "gnu");
  yield* script;
  yield padding(scriptBytes);
  yield END_OF_TAR;
}

/** An archive may set the modes of 500,000 directories. So all scripts share a part of each turn of the event loop. */
const turns = new TurnShare();

/** The bytes of a script, in pieces of about {@link CHUNK_BYTES}. Yields to the event loop. */
async function joined(lines: Iterable<string>): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  let text = "";
  for (const line of lines) {
    const turn = turns.enter();
    if (turn) await turn;
    text += line;
    if (text.length < CHUNK_BYTES) continue;
    pieces.push(toBytes(text));
    text = "";
  }
  if (text !== "") pieces.push(toBytes(text));
  return pieces;
}

function markEntry(name: ByteString, size: number): PlainTarEntry {
  const numbers = { mode: 0o600, uid: 0, gid: 0, modifyTime: 0, deviceMajor: 0, deviceMinor: 0 };
  return { name, kind: "file", linkName: "", size, ...numbers };
}

/** The `chmod` is for users other than root, who cannot empty a directory without write permission. */
const REMOVE_TEMPORARY = `rm -rf "$t" 2>/dev/null || { chmod -R u+rwx "$t"; rm -rf "$t"; }`;

/**
 * Works in the temporary directory. The target is `..`, even if it is renamed meanwhile.
 *
 * - `clash DIR` ends the script if an entry would replace something of another kind, or would go through a link. It
 *   descends only into directories that exist on both sides.
 * - `merge DIR` moves new entries, and files over files, by renaming. Only root can move a directory without write
 *   permission for its owner, so directories are writable until they are moved.
 */
function unpackScript(path: ByteString, createParents: boolean, nonce: string): string {
  return script(
    assign("p", path),
    createParents ? `[ -e "$p" ] || { parents "$p/."; }\n` : "",
    `directory "$p"; cd "$p" && [ -w . ] || { reach "$p"; exit ${EXIT.forbidden}; }\n`,
    `need tar; need mv; need find; t=${nonce}\n`,
    `give_up() { trap '' HUP INT TERM; cd ..; ${REMOVE_TEMPORARY}; exit $1; }\n`,
    `mkdir -m 700 $t && cd $t || exit 1; trap 'give_up 1' HUP INT TERM\n`,
    // With this umask modes are exactly the archive's, which contains every directory.
    `umask 0; tar -xpof - || give_up 1; umask 022\n`,
    `[ -f $t ] || give_up ${EXIT.incomplete}; . ./$t || give_up 1; rm $t\n`,
    moveInto(".."),
    `clash .; merge . || give_up 1; give_up 0\n`,
  );
}

/**
 * The functions `clash` and `merge`, which move the tree in the working directory into a target. The caller must define
 * `give_up CODE`.
 */
export function moveInto(target: string): string {
  const entries = '"./$1"/* "./$1"/.[!.]* "./$1"/..?*';
  return [
    `clash() { for f in ${entries}; do [ -e "$f" ] || [ -L "$f" ] || continue; n=${target}/\${f#./}\n`,
    `if [ -L "$n" ]; then [ -L "$f" ]\n`,
    `elif [ ! -e "$n" ]; then continue\n`,
    `elif [ -L "$f" ]; then false\n`,
    `elif [ -d "$f" ]; then [ -d "$n" ]\n`,
    `else [ -f "$n" ]; fi || { printf '\\n%s' "\${f#././}" >&2; give_up ${EXIT.kind}; }\n`,
    `[ -d "$f" ] && [ ! -L "$f" ] && clash "\${f#./}"; done; }\n`,
    `merge() { find "./$1" -mindepth 1 -maxdepth 1 ! -type d -exec mv -ft "${target}/$1" {} + || return\n`,
    `for f in ${entries}; do [ -d "$f" ] && [ ! -L "$f" ] || continue; n=\${f#./} m=\n`,
    `[ -w "$f" ] && [ -x "$f" ] && [ -r "$f" ] || { m=$(stat -c %a "$f"); chmod u+rwx "$f"; }\n`,
    `if [ -d "${target}/$n" ]; then merge "$n" || return; else\n`,
    `mv -T "$f" "${target}/$n" || return; [ -z "$m" ] || chmod $m "${target}/$n"; fi; done; }\n`,
  ].join("");
}

function unpackError(path: ByteString, end: { readonly code: number; readonly stderr: string }): BerthError {
  const entry = end.stderr.slice(end.stderr.lastIndexOf("\n") + 1);
  const wanted =
    end.code === EXIT.kind && entry !== ""
      ? `fit for the archive: its entry ${JSON.stringify(entry)} would replace something of another kind, or go through a link`
      : "a directory";
  return scriptError({ path, wanted }, end);
}

/** Limit for all files together. Each part, and each file, takes a few processes in the sandbox. */
const MAX_PARTS = 10_000;
const OWNER_FILE_BITS = 0o600;

/**
 * Files with holes. Because not every tar supports holes, their data is unpacked without them, and moved to its place
 * once everything is unpacked.
 */
class LateHoles {
  readonly #files = new Map<ByteString, { readonly mode: number; readonly map: SparseMap }>();
  #parts = 0;

  /** Returns the entry to unpack first. @throws `ARCHIVE_REJECTED` for too many parts. */
  close(entry: PlainTarEntry): PlainTarEntry {
    const { name, mode, sparse: map } = entry;
    // A tar may contain a file twice. The last one counts.
    this.#files.delete(name);
    if (map === undefined) return entry;
    this.#parts += Math.max(map.segments.length, 1);
    if (this.#parts > MAX_PARTS) {
      throw new BerthError(
        "ARCHIVE_REJECTED",
        `The archive was refused, and nothing of it unpacked: its sparse files have more than ${MAX_PARTS} parts.`,
        { metadata: { entry: toText(name) } },
      );
    }
    this.#files.set(name, { mode, map });
    return { ...entry, mode: mode | OWNER_FILE_BITS, sparse: undefined };
  }

  /** The script to run in the target. `$t` must be a name that is free there. */
  *script(): Generator<string> {
    for (const [name, { mode, map }] of this.#files) {
      yield `f=${quote(`./${name}`)}; cat "$f" >$t.d && touch -r "$f" $t.m && : >"$f" || return\n`;
      let skip = 0;
      for (const { offset, length } of map.segments) {
        yield `dd if=$t.d of="$f" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes conv=notrunc status=none skip=${skip} count=${length} seek=${offset} || return\n`;
        skip += length;
      }
      yield `dd if=/dev/null of="$f" bs=1 seek=${map.realSize} status=none && touch -r $t.m "$f" && chmod ${mode.toString(8)} "$f" || return\n`;
    }
    if (this.#files.size > 0) yield "rm -f $t.d $t.m\n";
  }
}

/** The permissions that let the owner of a directory create files in it. */
const OWNER_DIRECTORY_BITS = 0o700;
/** Directories per `chmod`. */
const AT_ONCE = 100;

/**
 * Modes that directories get once everything is unpacked: not every tar fills a directory before it removes the owner's
 * permissions, or changes the mode of an existing one.
 */
class LateModes {
  /** The mode of each directory, if it has to be set. What is above a directory comes before it. */
  readonly #modes = new Map<ByteString, number | undefined>();

  /** Returns the entry to unpack first. */
  open(entry: PlainTarEntry): PlainTarEntry {
    if (entry.kind !== "directory") return entry;
    const mode = entry.mode | OWNER_DIRECTORY_BITS;
    const isLate = mode !== entry.mode || this.#modes.has(entry.name);
    this.#modes.set(entry.name, isLate ? entry.mode : undefined);
    return { ...entry, mode };
  }

  /** The script to run in the target to set the modes, deepest first. */
  *script(): Generator<string> {
    let words: string[] = [];
    let last: number | undefined;
    const line = (): string => `chmod ${last?.toString(8)} ${words.join(" ")} || return\n`;
    for (const name of [...this.#modes.keys()].reverse()) {
      const mode = this.#modes.get(name);
      if (mode === undefined) continue;
      if (words.length === AT_ONCE || (words.length > 0 && mode !== last)) {
        yield line();
        words = [];
      }
      words.push(quote(`./${name}`));
      last = mode;
    }
    if (words.length > 0) yield line();
  }
}
