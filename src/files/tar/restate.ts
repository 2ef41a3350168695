import { BerthError } from "../../core/errors.ts";
import type { ByteString } from "../byte-string.ts";
import type { PlainTarEntry, TarEntry } from "./tar-entry.ts";
import { readTar } from "./tar-reader.ts";
import { END_OF_TAR, encodeEntry, padding } from "./tar-writer.ts";

/** Small pieces are put together up to so many bytes. */
const CHUNK_BYTES = 256 * 1024;

/**
 * Writes a tar of a directory, as any tool made it of `.`, anew in the standard
 * dialect: with names relative to the directory.
 * @param whose what the tool is called where it writes what cannot be understood.
 * @throws `UNSUPPORTED` then.
 */
export async function* restateTar(chunks: AsyncIterable<Uint8Array>, whose: string): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of restate(chunks, whose)) {
    parts.push(part);
    bytes += part.length;
    if (bytes < CHUNK_BYTES) continue;
    yield Buffer.concat(parts, bytes);
    parts = [];
    bytes = 0;
  }
  yield Buffer.concat(parts, bytes);
}

/** Writes every entry anew. */
async function* restate(chunks: AsyncIterable<Uint8Array>, whose: string): AsyncGenerator<Buffer> {
  let size = 0;
  try {
    for await (const item of readTar(chunks)) {
      if (item.type === "content") {
        yield item.data;
        continue;
      }
      yield padding(size);
      const entry = relative(item.entry, whose);
      size = entry?.size ?? 0;
      if (entry !== undefined) yield encodeEntry(entry, "pax");
    }
  } catch (error) {
    if (!(error instanceof BerthError && error.reason === "ARCHIVE_REJECTED")) throw error;
    throw new BerthError("UNSUPPORTED", `The tar of ${whose} cannot be understood. ${error.message}`);
  }
  yield padding(size);
  yield END_OF_TAR;
}

/** An entry without the `./` that its name, and that of a hard link's target, begins with; undefined for the directory itself. */
function relative(entry: TarEntry, whose: string): PlainTarEntry | undefined {
  const { kind } = entry;
  if (kind === "other") {
    throw new BerthError("UNSUPPORTED", `The tar of ${whose} writes entries of a kind that is not standard.`);
  }
  const name = stripDot(entry.name);
  if (name === "") return undefined;
  const linkName = kind === "hard-link" ? stripDot(entry.linkName) : entry.linkName;
  return { ...entry, kind, name, linkName };
}

function stripDot(name: ByteString): ByteString {
  return name === "." ? "" : name.replace(/^\.\/+/, "");
}
