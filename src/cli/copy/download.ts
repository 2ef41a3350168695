import type { Writable } from "node:stream";
import { FileKind } from "../../../gen/ts/berth/v1/file_pb.js";
import { Failed } from "../exit.ts";
import { write } from "../io.ts";
import type { Chunks } from "./chunks.ts";
import { statIfThere, writeLocalFile } from "./local-file.ts";
import { inside, type LocalPlace, nameOf, type SandboxPlace } from "./place.ts";
import { unpackTree } from "./unpack.ts";
import { type CopyParts, statRemote } from "./upload.ts";

/** Copies a file or a tree out of a sandbox, to a path or to `stdout`. */
export async function download(
  parts: CopyParts,
  from: SandboxPlace,
  to: LocalPlace,
  stdout: Writable,
): Promise<void> {
  const { progress, onLeftOut, signal } = parts;
  const file = await statRemote(parts, from.sandboxId, from.path);
  if (file === undefined) throw new Failed(`${from.sandboxId}:${from.path} is not there`);
  const isTree = file.kind === FileKind.DIRECTORY;
  // Leaving a loop over a call does not end the call; this does.
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

/** Where a copy goes: into a directory that is there, under its own name, else to the path itself. */
async function localTarget(path: string, name: string | undefined, isTree: boolean): Promise<string> {
  const standing = await statIfThere(path);
  if (standing?.isDirectory()) return inside(path, name);
  if (standing !== undefined && isTree)
    throw new Failed(`${path} is no directory, and what is copied is one`);
  if (!isTree && path.endsWith("/")) throw new Failed(`${path} is no directory`);
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
