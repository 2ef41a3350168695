import { randomUUID } from "node:crypto";
import { constants, openSync, type Stats } from "node:fs";
import { type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Failed } from "../exit.ts";

/** A local file, opened for reading. */
interface LocalSource {
  readonly stat: Stats;
  /** The number of bytes, if known. */
  readonly size: number | undefined;
  readonly chunks: Chunks;
}

/** Opens anything but a directory: files, but also pipes and devices, which are read until EOF. */
export async function readLocalFile(file: string): Promise<LocalSource> {
  const standing = await stat(file);
  if (standing.isFIFO()) return { stat: standing, size: undefined, chunks: readPipe(file) };
  const handle = await open(file, "r");
  const info = await handle.stat();
  // Files whose content the kernel generates have size 0.
  const size = info.isFile() && info.size > 0 ? info.size : undefined;
  return { stat: info, size, chunks: contentOf(handle, size) };
}

/** The content of a file, up to its size when it was opened. Closes the file. */
export async function* contentOf(handle: FileHandle, size: number | undefined): AsyncGenerator<Uint8Array> {
  const end = size === undefined ? {} : { end: size - 1 };
  yield* handle.createReadStream({ highWaterMark: CHUNK_BYTES, ...end }) as AsyncIterable<Buffer>;
}

/**
 * Writes a file atomically: until everything is written, or if that fails, the old file stays. An existing file keeps
 * its mode. Anything that is not a file, such as a device, is written to directly.
 */
export async function writeLocalFile(
  target: string,
  mode: number,
  chunks: Chunks,
  signal: AbortSignal,
): Promise<void> {
  const standing = await statIfThere(target);
  if (standing?.isDirectory()) throw new Failed(`${target} is a directory`);
  if (standing?.isFIFO()) return writePipe(target, chunks, signal);
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

/** How often to check whether a named pipe has a reader. */
const PIPE_POLL_MS = 50;

/**
 * The content of a named pipe. Opened without blocking, because a blocked thread would keep the program from ending.
 */
function readPipe(file: string): Chunks {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  return new net.Socket({ fd, readable: true, writable: false });
}

/** Writes to a named pipe as soon as it has a reader. */
async function writePipe(file: string, chunks: Chunks, signal: AbortSignal): Promise<void> {
  let fd = openForWriting(file);
  for (; fd === undefined; fd = openForWriting(file)) await sleep(PIPE_POLL_MS, undefined, { signal });
  await pipeline(chunks, new net.Socket({ fd, readable: false, writable: true }), { signal });
}

/** Undefined while the pipe has no reader. */
function openForWriting(pipe: string): number | undefined {
  try {
    return openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENXIO") return undefined;
    throw error;
  }
}

/** The stats of a path, with links followed. Undefined if there is nothing. */
export async function statIfThere(file: string): Promise<Stats | undefined> {
  try {
    return await stat(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** A stream of bytes. */
export type Chunks = AsyncIterable<Uint8Array>;

/**
 * The approximate size of messages: smaller ones cost more calls, larger ones more memory. The service accepts up to 1
 * MiB.
 */
export const CHUNK_BYTES = 256 * 1024;

/** Combines small chunks and splits large ones to the size of a message. */
export async function* inMessages(chunks: Chunks): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let held: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    held.push(chunk);
    bytes += chunk.length;
    if (bytes < CHUNK_BYTES) continue;
    const whole = Buffer.concat(held, bytes);
    let at = 0;
    for (; bytes - at >= CHUNK_BYTES; at += CHUNK_BYTES) yield whole.subarray(at, at + CHUNK_BYTES);
    held = [whole.subarray(at)];
    bytes -= at;
  }
  if (bytes > 0) yield Buffer.concat(held, bytes);
}

/** Passes chunks to a call that reads them. An error of the chunks is thrown as it is, not as the call's failure. */
export async function feeding<T>(chunks: Chunks, call: (chunks: Chunks) => Promise<T>): Promise<T> {
  let failure: { readonly error: unknown } | undefined;
  async function* watched(): Chunks {
    const iterator = chunks[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await iterator.next().catch((error: unknown) => {
          failure = { error };
          throw error;
        });
        if (next.done) return;
        yield next.value;
      }
    } finally {
      await iterator.return?.();
    }
  }
  try {
    return await call(watched());
  } catch (error) {
    throw failure ? failure.error : error;
  }
}
