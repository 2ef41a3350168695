import type { ByteString } from "../base/byte-string.ts";
import type { BerthError } from "../base/errors.ts";
import { ArchiveCheck } from "./archive-check.ts";
import { scriptError } from "./failure.ts";
import { LateHoles } from "./late-holes.ts";
import { LateModes } from "./late-modes.ts";
import type { Operation } from "./operation.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import type { PlainTarEntry } from "./tar/tar-entry.ts";
import { readTar } from "./tar/tar-reader.ts";
import { END_OF_TAR, encodeEntry, padding } from "./tar/tar-writer.ts";
import { until } from "./until.ts";

/** What was unpacked. */
export interface UnpackedArchive {
  /** Entries, directories and links included. */
  readonly entryCount: number;
  /** Bytes of regular files. */
  readonly sizeBytes: number;
}

/** Small pieces are put together up to so many bytes. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Unpacks a tar into a directory. Each entry is checked and written anew, so
 * that the image's tar reads only what this file wrote, into a temporary
 * directory beside; once all of it is there, it is moved into place.
 * @throws `ARCHIVE_REJECTED`, `FILE_NOT_FOUND`, `FILE_KIND`, `UNSUPPORTED` without tar, `NO_SPACE`, and what `chunks`
 *   throws; nothing has then been unpacked, but for a failure while it was moved into place.
 */
export async function uploadArchive(
  op: Operation,
  path: ByteString,
  chunks: AsyncIterable<Uint8Array>,
  createParents: boolean,
): Promise<UnpackedArchive> {
  const nonce = op.temporaryName();
  const running = await op.start(unpackScript(path, createParents, nonce), { stdin: true });
  const check = new ArchiveCheck();
  try {
    for await (const chunk of gather(rewrite(until(progressing(op, chunks), running.ended), check, nonce))) {
      if (running.over) break;
      await running.write(chunk);
    }
    running.closeStdin();
    op.progressed();
    while ((await running.read()) !== undefined);
    const end = await running.ended;
    if (end.code !== 0) throw unpackError(path, end);
  } catch (error) {
    // Where the script has ended by itself, that is why the archive broke off.
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
 * Checks every entry and writes it anew, in the dialect that small tars read
 * too. The last entry is a mark: only a complete archive ends with it.
 */
async function* rewrite(
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
  const script = Buffer.concat([holes.script(), modes.script()]);
  yield encodeEntry(markEntry(nonce, script.length), "gnu");
  yield script;
  yield padding(script.length);
  yield END_OF_TAR;
}

function markEntry(name: ByteString, size: number): PlainTarEntry {
  const numbers = { mode: 0o600, uid: 0, gid: 0, modifyTime: 0, deviceMajor: 0, deviceMinor: 0 };
  return { name, kind: "file", linkName: "", size, ...numbers };
}

async function* gather(parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let bytes = 0;
  for await (const part of parts) {
    held.push(part);
    bytes += part.length;
    if (bytes < CHUNK_BYTES) continue;
    yield held.length === 1 ? part : Buffer.concat(held, bytes);
    held = [];
    bytes = 0;
  }
  yield Buffer.concat(held, bytes);
}

/** Others than root cannot remove what lies in a directory that is closed to them. */
const REMOVE_TEMPORARY = `rm -rf "$t" 2>/dev/null || { chmod -R u+rwx "$t"; rm -rf "$t"; }`;

/**
 * Works in the temporary directory; the target is `..`, whatever it is called
 * by then.
 *
 * - `clash DIR` ends the script where an entry would replace something of
 *   another kind, or would go through a link. It looks no deeper than both are.
 * - `merge DIR` moves what is new, and files over files, by renaming. A
 *   directory that its owner may not write to, cannot be moved by others than
 *   root: it may until it is moved.
 */
function unpackScript(path: ByteString, createParents: boolean, nonce: string): string {
  const entries = '"./$1"/* "./$1"/.[!.]* "./$1"/..?*';
  return script(
    assign("p", path),
    createParents ? `[ -e "$p" ] || { parents "$p/."; }\n` : "",
    `directory "$p"; cd "$p" && [ -w . ] || { reach "$p"; exit ${EXIT.forbidden}; }\n`,
    `need tar; need mv; need find; t=${nonce}\n`,
    `give_up() { trap '' HUP INT TERM; cd ..; ${REMOVE_TEMPORARY}; exit $1; }\n`,
    `mkdir -m 700 $t && cd $t || exit 1; trap 'give_up 1' HUP INT TERM\n`,
    // Nothing is taken from the modes: every directory is told.
    `umask 0; tar -xpof - || give_up 1; umask 022\n`,
    `[ -f $t ] || give_up ${EXIT.incomplete}; . ./$t || give_up 1; rm $t\n`,
    `clash() { for f in ${entries}; do [ -e "$f" ] || [ -L "$f" ] || continue; n=../\${f#./}\n`,
    `if [ -L "$n" ]; then [ -L "$f" ]\n`,
    `elif [ ! -e "$n" ]; then continue\n`,
    `elif [ -L "$f" ]; then false\n`,
    `elif [ -d "$f" ]; then [ -d "$n" ]\n`,
    `else [ -f "$n" ]; fi || { printf '\\n%s' "\${f#././}" >&2; give_up ${EXIT.kind}; }\n`,
    `[ -d "$f" ] && [ ! -L "$f" ] && clash "\${f#./}"; done; }\n`,
    `merge() { find "./$1" -mindepth 1 -maxdepth 1 ! -type d -exec mv -ft "../$1" {} + || return\n`,
    `for f in ${entries}; do [ -d "$f" ] && [ ! -L "$f" ] || continue; n=\${f#./} m=\n`,
    `[ -w "$f" ] && [ -x "$f" ] && [ -r "$f" ] || { m=$(stat -c %a "$f"); chmod u+rwx "$f"; }\n`,
    `if [ -d "../$n" ]; then merge "$n" || return; else\n`,
    `mv -T "$f" "../$n" || return; [ -z "$m" ] || chmod $m "../$n"; fi; done; }\n`,
    `clash .; merge . || give_up 1; give_up 0\n`,
  );
}

function unpackError(path: ByteString, end: { readonly code: number; readonly stderr: string }): BerthError {
  const entry = end.stderr.slice(end.stderr.lastIndexOf("\n") + 1);
  const wanted =
    end.code === EXIT.kind && entry !== ""
      ? `fit for the archive: its entry ${JSON.stringify(entry)} would replace something of another kind, or go through a link`
      : "a directory";
  return scriptError({ path, wanted }, end);
}
