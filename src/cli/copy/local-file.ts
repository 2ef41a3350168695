import { randomUUID } from "node:crypto";
import type { Stats } from "node:fs";
import { type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { Failed } from "../exit.ts";
import { CHUNK_BYTES, type Chunks } from "./chunks.ts";

/** A file of this machine, opened to be read. */
export interface LocalSource {
  readonly stat: Stats;
  /** How many bytes there are, where that is known. */
  readonly size: number | undefined;
  readonly chunks: Chunks;
}

/** Opens what is no directory: files, but also pipes and devices, which are read to their end. */
export async function readLocalFile(file: string): Promise<LocalSource> {
  const handle = await open(file, "r");
  const info = await handle.stat();
  // Files that the kernel makes up as they are read say that they are empty.
  const size = info.isFile() && info.size > 0 ? info.size : undefined;
  return { stat: info, size, chunks: contentOf(handle, size) };
}

/** What a file holds, no more than it held when it was opened. Closes it. */
export async function* contentOf(handle: FileHandle, size: number | undefined): AsyncGenerator<Uint8Array> {
  const end = size === undefined ? {} : { end: size - 1 };
  yield* handle.createReadStream({ highWaterMark: CHUNK_BYTES, ...end }) as AsyncIterable<Buffer>;
}

/**
 * Writes a file in one step: until all is there, and where that fails, it is as
 * before. One that is there keeps its mode; what is no file, such as a device,
 * is written to.
 */
export async function writeLocalFile(
  target: string,
  mode: number,
  chunks: Chunks,
  signal: AbortSignal,
): Promise<void> {
  const standing = await statIfThere(target);
  if (standing?.isDirectory()) throw new Failed(`${target} is a directory`);
  if (standing && !standing.isFile()) {
    const handle = await open(target, "w");
    await handle.writeFile(chunks, { signal }).finally(() => handle.close());
    return;
  }
  const place = standing ? await realpath(target) : target;
  const temporary = path.join(path.dirname(place), `.berth-cp-${randomUUID()}`);
  const handle = await open(temporary, "wx", mode & 0o777);
  try {
    if (standing) await handle.chmod(standing.mode & 0o7777);
    await handle.writeFile(chunks, { signal }).finally(() => handle.close());
    await rename(temporary, place);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** What stands at a path, links followed; undefined where nothing does. */
export async function statIfThere(file: string): Promise<Stats | undefined> {
  try {
    return await stat(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
