import { BerthError } from "../core/errors.ts";
import type { ByteString } from "./byte-string.ts";
import { scriptError, withoutVanished } from "./failure.ts";
import type { Operation } from "./operation.ts";
import type { RunningScript } from "./running-script.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";
import type { PlainTarEntry, TarEntry } from "./tar/tar-entry.ts";
import { readTar } from "./tar/tar-reader.ts";
import { END_OF_TAR, encodeEntry, padding } from "./tar/tar-writer.ts";

/** Small pieces are put together up to so many bytes. */
const CHUNK_BYTES = 256 * 1024;

/** What tars say, in both makes, of what they rightly leave out. */
const LEFT_OUT =
  /(socket ignored|unknown file type|file (removed before|changed as) we read it|shrank by .*|error exit delayed.*|Exiting with failure status.*)$/;

const WANTED = "a directory or a regular file";

/**
 * Streams a directory, or one file, as a tar of the standard dialect, whatever
 * the image's tar writes: names are relative to the directory, or the file's own.
 * @throws `FILE_NOT_FOUND`, `FILE_KIND`, `UNSUPPORTED` without tar, `FILE_PERMISSION` for a file that may not be read.
 */
export async function* downloadArchive(op: Operation, path: ByteString): AsyncGenerator<Buffer> {
  const running = await op.start(
    script(
      assign("p", path),
      `if [ -d "$p" ]; then enter "$p"; need tar; exec tar -cf - .\n`,
      `elif [ -f "$p" ]; then [ -r "$p" ] || exit ${EXIT.forbidden}\n`,
      `cd "\${p%/*}/" || exit ${EXIT.forbidden}; need tar; exec tar -chf - "./\${p##*/}"\n`,
      `elif [ -e "$p" ]; then exit ${EXIT.kind}; else reach "$p"; exit ${EXIT.missing}; fi\n`,
    ),
  );
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of translate(outputOf(op, running, path))) {
    parts.push(part);
    bytes += part.length;
    if (bytes < CHUNK_BYTES) continue;
    yield Buffer.concat(parts, bytes);
    parts = [];
    bytes = 0;
  }
  yield Buffer.concat(parts, bytes);
}

/** What the tar writes; where it writes nothing, why. */
async function* outputOf(op: Operation, running: RunningScript, path: ByteString): AsyncGenerator<Buffer> {
  let chunk = await running.read();
  if (chunk === undefined) await op.succeed(running, { path, wanted: WANTED });
  for (; chunk !== undefined; chunk = await running.read()) {
    op.progressed();
    yield chunk;
  }
  await finish(running, path);
}

/** Writes every entry anew. */
async function* translate(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let size = 0;
  try {
    for await (const item of readTar(chunks)) {
      if (item.type === "content") {
        yield item.data;
        continue;
      }
      yield padding(size);
      const entry = relative(item.entry);
      size = entry?.size ?? 0;
      if (entry !== undefined) yield encodeEntry(entry, "pax");
    }
  } catch (error) {
    if (!(error instanceof BerthError && error.reason === "ARCHIVE_REJECTED")) throw error;
    throw new BerthError(
      "UNSUPPORTED",
      `The tar of the sandbox's image cannot be understood. ${error.message}`,
    );
  }
  yield padding(size);
  yield END_OF_TAR;
}

/** An entry without the `./` that its name, and that of a hard link's target, begins with; undefined for the directory itself. */
function relative(entry: TarEntry): PlainTarEntry | undefined {
  const { kind } = entry;
  if (kind === "other") {
    throw new BerthError(
      "UNSUPPORTED",
      "The tar of the sandbox's image writes entries of a kind that is not standard.",
    );
  }
  const name = stripDot(entry.name);
  if (name === "") return undefined;
  const linkName = kind === "hard-link" ? stripDot(entry.linkName) : entry.linkName;
  return { ...entry, kind, name, linkName };
}

function stripDot(name: ByteString): ByteString {
  return name === "." ? "" : name.replace(/^\.\/+/, "");
}

/** Fails unless all that the tar complained of is what it rightly left out. */
async function finish(running: RunningScript, path: ByteString): Promise<void> {
  const end = await running.ended;
  if (end.code === 0) return;
  const complaints = withoutVanished(end.stderr)
    .split("\n")
    .filter((line) => line !== "" && !LEFT_OUT.test(line));
  if (end.code > LAST_OWN_CODE || complaints.length > 0) {
    throw scriptError({ path, wanted: WANTED }, { code: end.code, stderr: complaints.join("\n") });
  }
}

/** GNU's tar ends with 1 or 2, busybox's with 1. */
const LAST_OWN_CODE = 2;
