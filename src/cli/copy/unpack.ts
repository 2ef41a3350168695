import type { Stats } from "node:fs";
import {
  chmod,
  type FileHandle,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  rename,
  rm,
  symlink,
  utimes,
} from "node:fs/promises";
import path from "node:path";
import { ArchiveCheck } from "../../files/archive-check.ts";
import { type ByteString, fromBytes, fromText, toBytes, toText } from "../../files/byte-string.ts";
import type { PlainTarEntry } from "../../files/tar/tar-entry.ts";
import { readTar } from "../../files/tar/tar-reader.ts";
import { Failed } from "../exit.ts";
import { visible } from "../format.ts";
import type { Chunks } from "./chunks.ts";
import { statIfThere } from "./local-file.ts";
import type { OnLeftOut } from "./pack.ts";

const OWNER_BITS = 0o700;
const SPECIAL: Readonly<Record<string, string>> = {
  fifo: "a named pipe",
  "character-device": "a device",
  "block-device": "a device",
};

/**
 * Unpacks a tar that nobody vouches for into a directory, made with that mode
 * where it is missing. Nothing is put outside of it, whatever the tar and the
 * links in the directory say. All of the tar is unpacked before anything moves
 * into place, where files replace files of the same name and others stay.
 */
export async function unpackTree(
  chunks: Chunks,
  target: string,
  mode: number,
  onLeftOut: OnLeftOut,
): Promise<void> {
  const isThere = (await statIfThere(target)) !== undefined;
  // On the same file system as the target.
  const beside = isThere ? target : path.dirname(target);
  const staging = await mkdtemp(path.join(beside, ".berth-cp-"));
  try {
    const tree = path.join(staging, "tree");
    await mkdir(tree, { mode: (mode | OWNER_BITS) & 0o777 });
    const directories = await fill(fromText(tree), chunks, onLeftOut);
    if (isThere) await merge(fromText(tree), fromText(target));
    else await rename(tree, target);
    await finish(directories, fromText(target));
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

/** Unpacks into an empty directory; returns the directories, in the order of the tar. */
async function fill(root: ByteString, chunks: Chunks, onLeftOut: OnLeftOut): Promise<PlainTarEntry[]> {
  const check = new ArchiveCheck();
  const directories: PlainTarEntry[] = [];
  let file: { readonly handle: FileHandle; readonly modifyTime: number } | undefined;
  const close = async () => {
    const closing = file;
    file = undefined;
    await closing?.handle.utimes(closing.modifyTime, closing.modifyTime);
    await closing?.handle.close();
  };
  try {
    for await (const item of readTar(chunks)) {
      if (item.type === "content") {
        await file?.handle.writeFile(item.data);
        continue;
      }
      await close();
      const special = SPECIAL[item.entry.kind];
      if (special !== undefined) {
        onLeftOut(toText(item.entry.name), special);
        continue;
      }
      for (const entry of check.admit(item.entry)) {
        const place = toBytes(`${root}/${entry.name}`);
        if (entry.kind === "directory") {
          await mkdir(place, { mode: (entry.mode | OWNER_BITS) & 0o777, recursive: true });
          directories.push(entry);
          continue;
        }
        // A tar may tell of a file twice; the last one counts.
        await rm(place, { force: true });
        if (entry.kind === "symlink") await symlink(toBytes(entry.linkName), place);
        else if (entry.kind === "hard-link") await link(toBytes(`${root}/${entry.linkName}`), place);
        else file = { handle: await open(place, "wx", entry.mode & 0o777), modifyTime: entry.modifyTime };
      }
    }
    await close();
    return directories;
  } finally {
    await file?.handle.close();
  }
}

/** Moves what is in one directory into another, directories into those of the same name. Follows no link. */
async function merge(from: ByteString, to: ByteString): Promise<void> {
  const names = await readdir(toBytes(from), { encoding: "buffer" });
  for (const name of names.map(fromBytes)) {
    const source = `${from}/${name}`;
    const target = `${to}/${name}`;
    const isDirectory = (await lstat(toBytes(source))).isDirectory();
    const standing = await lstatIfThere(target);
    if (standing !== undefined && standing.isDirectory() !== isDirectory) {
      const [there, comes] = isDirectory ? ["no directory", "one"] : ["a directory", "none"];
      throw new Failed(`${visible(toText(target))} is ${there}, and what is copied there is ${comes}`);
    }
    if (standing !== undefined && isDirectory) await merge(source, target);
    else await rename(toBytes(source), toBytes(target));
  }
}

/** Gives directories their times, and their modes where those close them to their owner. */
async function finish(directories: readonly PlainTarEntry[], root: ByteString): Promise<void> {
  for (const { name, mode, modifyTime } of directories.toReversed()) {
    const place = toBytes(`${root}/${name}`);
    await utimes(place, modifyTime, modifyTime);
    const closed = OWNER_BITS & ~mode;
    if (closed !== 0) await chmod(place, (await lstat(place)).mode & 0o777 & ~closed);
  }
}

async function lstatIfThere(place: ByteString): Promise<Stats | undefined> {
  try {
    return await lstat(toBytes(place));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
