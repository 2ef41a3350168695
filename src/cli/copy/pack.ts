import { constants, type Stats } from "node:fs";
import { lstat, open, readdir, readlink } from "node:fs/promises";
import { type ByteString, fromBytes, fromText, toBytes, toText } from "../../base/byte-string.ts";
import type { PlainTarEntry } from "../../files/tar/tar-entry.ts";
import { END_OF_TAR, encodeEntry, padding } from "../../files/tar/tar-writer.ts";
import { Failed } from "../exit.ts";
import { contentOf } from "./local-file.ts";

/** Says that something is not copied, and what it is. */
export type OnLeftOut = (file: string, what: string) => void;

/**
 * Packs what is in a directory into a tar: files, directories and symbolic
 * links, with their modes and times. What else there is, is left out.
 */
export async function* packTree(directory: string, onLeftOut: OnLeftOut): AsyncGenerator<Uint8Array> {
  yield* packDirectory(fromText(directory), "", onLeftOut);
  yield END_OF_TAR;
}

async function* packDirectory(
  directory: ByteString,
  prefix: ByteString,
  onLeftOut: OnLeftOut,
): AsyncGenerator<Uint8Array> {
  const names = await readdir(toBytes(directory), { encoding: "buffer" });
  for (const name of names.map(fromBytes).sort()) {
    const file = `${directory}/${name}`;
    const entryName = `${prefix}${name}`;
    const stat = await lstat(toBytes(file));
    if (stat.isDirectory()) {
      yield header(entryName, "directory", stat);
      yield* packDirectory(file, `${entryName}/`, onLeftOut);
    } else if (stat.isSymbolicLink()) {
      const linkName = fromBytes(await readlink(toBytes(file), { encoding: "buffer" }));
      yield header(entryName, "symlink", stat, { linkName });
    } else if (stat.isFile()) yield* packFile(file, entryName);
    else onLeftOut(toText(file), kindOf(stat));
  }
}

async function* packFile(file: ByteString, entryName: ByteString): AsyncGenerator<Uint8Array> {
  const handle = await open(toBytes(file), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = await handle.stat();
    yield header(entryName, "file", stat, { size: stat.size });
    let left = stat.size;
    if (left > 0) {
      for await (const chunk of contentOf(handle, left)) {
        left -= chunk.length;
        yield chunk;
      }
    }
    if (left > 0) throw new Failed(`${toText(file)} became shorter while it was read`);
    yield padding(stat.size);
  } finally {
    await handle.close();
  }
}

function header(
  name: ByteString,
  kind: PlainTarEntry["kind"],
  { mode, mtimeMs }: Stats,
  more: Partial<PlainTarEntry> = {},
): Buffer {
  const modifyTime = Math.floor(mtimeMs / 1000);
  const none = { linkName: "", uid: 0, gid: 0, size: 0, deviceMajor: 0, deviceMinor: 0 };
  return encodeEntry({ ...none, name, kind, mode: mode & 0o7777, modifyTime, ...more }, "pax");
}

function kindOf(stat: Stats): string {
  if (stat.isSocket()) return "a socket";
  return stat.isFIFO() ? "a named pipe" : "a device";
}
