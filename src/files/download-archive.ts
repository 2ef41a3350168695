import { type ByteString, fromBytes } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { noMemory } from "../base/memory-budget.ts";
import { trimEndOf } from "../base/trim.ts";
import { TurnShare } from "../base/turn-share.ts";
import { strangeAnswer } from "./file-info.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { assign, assignAll, EXIT, inParts, script, scriptError } from "./script.ts";
import { complaintsOf, isHarmless, LAST_CODE_OF_TAR, refusesOption, restateItems } from "./tar/restate.ts";
import { readTar, type TarItem } from "./tar/tar-reader.ts";

/**
 * Streams a directory, or one file, as a tar of the standard dialect, regardless of the dialect of the image's tar.
 * Names are relative to the directory, or the file's name. Files that change meanwhile appear as they were read, or are
 * omitted. Berth's temporary files are omitted.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND`, `FILE_PERMISSION` for an unreadable file, `UNSUPPORTED` without tar, and for
 *   large holes that the image's tar would write as zeros.
 */
export function downloadArchive(op: Operation, path: ByteString): AsyncGenerator<Buffer> {
  // If the caller names a temporary file, it is not hidden.
  const isHidden = op.isTemporary(path) ? () => false : (name: ByteString) => op.isTemporary(name);
  return restateItems(itemsOf(op, path), { whose: "the sandbox's image", isHidden });
}

async function* itemsOf(op: Operation, path: ByteString): AsyncGenerator<TarItem> {
  const running = await op.start(archiveScript(path, "S"), OF_TAR);
  const first = await running.read();
  const knowsHoles = first !== undefined || !refusesOption((await running.ended).stderr);
  yield* knowsHoles ? readTar(tarOutput(op, running, path, first)) : smallTarItems(op, path);
}

const WANTED = "a directory or a regular file";
/** Options of scripts whose stderr is that of a tar. */
const OF_TAR = { isNoise: isHarmless };

/**
 * A script that writes a tar of a directory, as `.`, or of one file.
 * @param options the tool's options, in addition to those that create a tar and follow a link to the file
 * @param before runs first, with the options and the file for `find` as arguments: the name of a function in
 *   `functions`, or `:`
 */
function archiveScript(path: ByteString, options: string, before = ":", functions = ""): string {
  return script(
    functions,
    assign("p", path),
    `if [ -d "$p" ]; then enter "$p"; need tar; ${before} .; exec tar -c${options}f - .\n`,
    `elif [ -f "$p" ]; then [ -r "$p" ] || exit ${EXIT.forbidden}\n`,
    `cd "\${p%/*}/" || exit ${EXIT.forbidden}; need tar; f=./\${p##*/}; ${before} -L "$f"; exec tar -ch${options}f - "$f"\n`,
    `elif [ -e "$p" ]; then exit ${EXIT.kind}; else reach "$p"; exit ${EXIT.missing}; fi\n`,
  );
}

/**
 * The output of a tar in the sandbox.
 * @param first what was already read of it; undefined: nothing
 * @throws if it writes nothing, or if it reports errors other than files that it was right to omit.
 */
async function* tarOutput(
  op: Operation,
  running: RunningScript,
  path: ByteString,
  first: Buffer | undefined,
): AsyncGenerator<Buffer> {
  let chunk = first ?? (await running.read());
  if (chunk === undefined) await op.succeed(running, { path, wanted: WANTED });
  for (; chunk !== undefined; chunk = await running.read()) {
    op.progressed();
    yield chunk;
  }
  const end = await running.ended;
  if (end.code === 0) return;
  const complaints = complaintsOf(end.stderr);
  if (end.code > LAST_CODE_OF_TAR || complaints.length > 0) {
    throw scriptError({ path, wanted: WANTED }, { code: end.code, stderr: complaints.join("\n") });
  }
}

/** Total size and number of names, which must be known if a tar ends early. */
const MAX_NAME_BYTES = 16 * 1024 * 1024;
const MAX_NAMES = 1_000_000;
/** About what a name takes in memory besides its bytes. */
const NAME_BYTES = 100;
/** Limits how much the search for names that were not sent blocks the event loop. */
const turns = new TurnShare();
/** No tool can access a file with a longer name. */
const MAX_PATH_BYTES = 4096;
const SHORT_READ = /short read$/i;
const ZEROS = Buffer.alloc(64 * 1024);

/**
 * Ends the script, with the file's name, if a file is larger than 1 GiB and less than a sixteenth of it is on disk: a
 * tar without support for holes would write all of it.
 */
const REFUSE_HOLES = `holes() { h=$(find "$@" -type f -size +2097152 -exec sh -c 'for f do set -- $(stat -L -c "%b %B %s" "$f")
[ $# = 3 ] && [ $(($1*$2)) -lt $(($3/16)) ] && printf %s "$f" && exit; done' sh {} + 2>/dev/null)
[ -z "$h" ] || { printf '\\n%s' "$h" >&2; exit ${EXIT.holes}; }; }
`;

/**
 * Reads the tar that a small tool, such as busybox's, creates of a directory or a file. Such a tool stops at a file
 * that shrinks while it is read. That file is then padded with zeros, and tars of the rest follow.
 * @throws `UNSUPPORTED` for large holes, and if the rest has too many names.
 */
async function* smallTarItems(op: Operation, path: ByteString): AsyncGenerator<TarItem> {
  const sent = new SentNames((bytes) => op.memory.take(bytes));
  const whole = await op.start(archiveScript(path, "", "holes", REFUSE_HOLES), OF_TAR);
  if (!(yield* itemsUntilShort(op, whole, path, sent))) return;
  for (const part of inParts(await sent.missing(await namesIn(op, path)))) {
    for (let left = part; left.length > 0; ) {
      const running = await op.start(partScript(path, left), OF_TAR);
      if (!(yield* itemsUntilShort(op, running, path, sent))) break;
      const still = await sent.missing(left);
      if (still.length === left.length) throw tooRestless();
      left = still;
    }
  }
}

/** The names that were sent. Each name is sent once, and nothing is sent below a non-directory. */
class SentNames {
  /** By name: whether it is a directory. */
  readonly #sent = new Map<ByteString, boolean>();
  readonly #take: (bytes: number) => boolean;
  #bytes = 0;

  /** @param take called with the memory that a further name takes. Returns whether there is room for that. */
  constructor(take: (bytes: number) => boolean) {
    this.#take = take;
  }

  /**
   * Records a name; false if it conflicts with what was sent. @throws `TOO_MANY_OPERATIONS` if there is no memory for it.
   */
  add(tarName: ByteString, isDirectory: boolean): boolean {
    const name = plain(tarName);
    if (!this.#fits(name)) return false;
    this.#bytes += name.length;
    // They can no longer be compared.
    if (this.#bytes > MAX_NAME_BYTES) {
      this.#sent.clear();
      return true;
    }
    if (!this.#take(name.length + NAME_BYTES)) throw noMemory();
    this.#sent.set(name, isDirectory);
    return true;
  }

  /**
   * Of these {@link plain} names, those that were not sent and do not conflict. Yields to the event loop.
   * @throws `UNSUPPORTED` if that is unknown, or if there are too many.
   */
  async missing(names: Iterable<ByteString>): Promise<ByteString[]> {
    if (this.#bytes > MAX_NAME_BYTES) throw tooRestless();
    const missing: ByteString[] = [];
    for (const name of names) {
      const turn = turns.enter();
      if (turn) await turn;
      if (this.#fits(name) && missing.push(name) > MAX_NAMES) throw tooRestless();
    }
    return missing;
  }

  #fits(name: ByteString): boolean {
    if (name.length > MAX_PATH_BYTES || this.#sent.has(name)) return false;
    for (let at = name.lastIndexOf("/"); at >= 0; at = name.lastIndexOf("/", at - 1)) {
      if (this.#sent.get(name.slice(0, at)) === false) return false;
    }
    return true;
  }
}

/**
 * Items of one tar, without those that conflict with what was sent. Returns whether it ended early because a file
 * shrank.
 */
async function* itemsUntilShort(
  op: Operation,
  running: RunningScript,
  path: ByteString,
  sent: SentNames,
): AsyncGenerator<TarItem, boolean> {
  let due = 0;
  let isLeftOut = false;
  try {
    for await (const item of readTar(tarOutput(op, running, path, undefined))) {
      if (item.type === "entry") {
        due = item.entry.size;
        isLeftOut = !sent.add(item.entry.name, item.entry.kind === "directory");
      } else due -= item.data.length;
      if (!isLeftOut) yield item;
    }
    return false;
  } catch (error) {
    if (!running.over || !isShort(await running.ended)) throw error;
  }
  for (; due > 0 && !isLeftOut; due -= ZEROS.length) yield { type: "content", data: ZEROS.subarray(0, due) };
  return true;
}

/** Whether a tar ended because a file shrank, without any other error. */
function isShort({ code, stderr }: { readonly code: number; readonly stderr: string }): boolean {
  const complaints = complaintsOf(stderr);
  return code === 1 && complaints.length > 0 && complaints.every((line) => SHORT_READ.test(line));
}

/** A script that writes a tar of some names below a directory, without anything below them. */
function partScript(path: ByteString, names: readonly ByteString[]): string {
  return script(
    assign("p", path),
    `enter "$p"\n`,
    assignAll(names.map((name) => `./${name}`)),
    `exec tar --no-recursion -cf - "$@"\n`,
  );
}

/** Names of everything below a directory, relative to it; none for a file. */
async function namesIn(op: Operation, path: ByteString): Promise<Iterable<ByteString>> {
  const running = await op.start(
    script(assign("p", path), `[ -d "$p" ] || exit 0; enter "$p"; need find; find . -mindepth 1 -print0\n`),
  );
  const names = await running.readAll(MAX_NAME_BYTES, tooRestless);
  await op.succeedBarVanished(running, { path, wanted: WANTED });
  return splitNames(fromBytes(names));
}

/** @throws `UNSUPPORTED` for an empty name, of which there may be millions. */
function* splitNames(text: ByteString): Generator<ByteString> {
  for (let at = 0, end = 0; at < text.length; at = end + 1) {
    const next = text.indexOf("\0", at);
    end = next < 0 ? text.length : next;
    const name = plain(text.slice(at, end));
    if (name === "") throw strangeAnswer("find");
    yield name;
  }
}

/** The name without the leading `./` and the trailing slash that tools add. */
function plain(name: ByteString): ByteString {
  return trimEndOf(name.replace(/^\.\/+/, ""), "/");
}

function tooRestless(): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    "The tar of the sandbox's image ends at a file that shrinks while it is read, and there are too many files to go on from there. Use an image with GNU tar.",
    { metadata: { tool: "tar" } },
  );
}
