import type { Stats } from "node:fs";
import { lstat, mkdir, mkdtemp, readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import type { Writable } from "node:stream";
import { FileKind } from "../../../gen/ts/berth/v1/file_pb.js";
import { type ByteString, fromBytes, fromText, toBytes, toText } from "../../base/byte-string.ts";
import type { TarEntry } from "../../files/tar/tar-entry.ts";
import { finishDirectories, unpackEntries } from "../../files/unpack-entries.ts";
import { Failed } from "../exit.ts";
import { write } from "../io.ts";
import { visible } from "../visible.ts";
import { type Chunks, statIfThere, writeLocalFile } from "./local-file.ts";
import { inside, type LocalPlace, nameOf, type SandboxPlace } from "./place.ts";
import { type CopyParts, type OnLeftOut, statRemote } from "./upload.ts";

/** Copies a file or a directory out of a sandbox, to a path or to stdout. */
export async function download(
  parts: CopyParts,
  from: SandboxPlace,
  to: LocalPlace,
  stdout: Writable,
): Promise<void> {
  const { progress, onLeftOut, signal } = parts;
  const file = await statRemote(parts, from.sandboxId, from.path);
  if (file === undefined) throw new Failed(`${from.sandboxId}:${from.path} does not exist`);
  const isTree = file.kind === FileKind.DIRECTORY;
  // Leaving a loop over a call does not end the call, so abort it.
  const leave = new AbortController();
  const ended = AbortSignal.any([signal, leave.signal]);
  const chunks = isTree ? archiveOf(parts, from, ended) : contentOf(parts, from, ended);
  try {
    if (to.kind === "stream") {
      for await (const chunk of chunks) await write(stdout, chunk, signal);
      return;
    }
    const target = await localTarget(to.path, nameOf(from.path), isTree);
    if (isTree) await unpackTree(progress.count(chunks), target, file.mode, onLeftOut);
    else await writeLocalFile(target, file.mode, progress.count(chunks, Number(file.sizeBytes)), signal);
  } finally {
    leave.abort();
  }
}

/** The target of a copy: in an existing directory, under its own name; otherwise the path itself. */
async function localTarget(path: string, name: string | undefined, isTree: boolean): Promise<string> {
  const standing = await statIfThere(path);
  if (standing?.isDirectory()) return inside(path, name);
  if (standing !== undefined && isTree) throw new Failed(`${path} is not a directory, but the source is`);
  if (!isTree && path.endsWith("/")) throw new Failed(`${path} is not a directory`);
  return path;
}

async function* contentOf(
  { client, user }: CopyParts,
  { sandboxId, path }: SandboxPlace,
  signal: AbortSignal,
): Chunks {
  for await (const { part } of client.files.downloadFile({ sandboxId, path, user }, { signal })) {
    if (part.case === "chunk") yield part.value;
  }
}

async function* archiveOf(
  { client, user }: CopyParts,
  { sandboxId, path }: SandboxPlace,
  signal: AbortSignal,
): Chunks {
  for await (const { chunk } of client.files.downloadArchive({ sandboxId, path, user }, { signal }))
    yield chunk;
}

const OWNER_BITS = 0o700;
const SPECIAL: Readonly<Record<string, string>> = {
  fifo: "a named pipe",
  "character-device": "a device",
  "block-device": "a device",
};

/**
 * Unpacks an untrusted tar into a directory, which is created with `mode` if it is missing. Nothing is written outside
 * of it, whatever the tar and the links in the directory say. The whole tar is unpacked before anything moves into
 * place. Then files replace files of the same name; other files stay.
 */
async function unpackTree(chunks: Chunks, target: string, mode: number, onLeftOut: OnLeftOut): Promise<void> {
  const isThere = (await statIfThere(target)) !== undefined;
  // On the same file system as the target, so that files can be moved.
  const beside = isThere ? target : path.dirname(target);
  const staging = await mkdtemp(path.join(beside, ".berth-cp-"));
  try {
    const tree = path.join(staging, "tree");
    await mkdir(tree, { mode: (mode | OWNER_BITS) & 0o777 });
    const leaveOut = ({ kind, name }: TarEntry): boolean => {
      const special = SPECIAL[kind];
      if (special !== undefined) onLeftOut(toText(name), special);
      return special !== undefined;
    };
    const { directories } = await unpackEntries(fromText(tree), chunks, { leaveOut });
    if (isThere) await merge(fromText(tree), fromText(target));
    else await rename(tree, target);
    await finishDirectories(directories, fromText(target));
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

/** Moves the content of one directory into another, and merges directories of the same name. Follows no link. */
async function merge(from: ByteString, to: ByteString): Promise<void> {
  const names = await readdir(toBytes(from), { encoding: "buffer" });
  for (const name of names.map(fromBytes)) {
    const source = `${from}/${name}`;
    const target = `${to}/${name}`;
    const isDirectory = (await lstat(toBytes(source))).isDirectory();
    const standing = await lstatIfThere(target);
    if (standing !== undefined && standing.isDirectory() !== isDirectory) {
      const why = isDirectory
        ? "is not a directory, and a directory would replace it"
        : "is a directory, and a file or link would replace it";
      throw new Failed(`${visible(toText(target))} ${why}`);
    }
    if (standing !== undefined && isDirectory) await merge(source, target);
    else await rename(toBytes(source), toBytes(target));
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
