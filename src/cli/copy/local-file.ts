import { randomUUID } from "node:crypto";
import { constants, openSync, type Stats } from "node:fs";
import { type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Failed } from "../exit.ts";

/** A file of this machine, opened to be read. */
interface LocalSource {
  readonly stat: Stats;
  /** How many bytes there are, where that is known. */
  readonly size: number | undefined;
  readonly chunks: Chunks;
}

/** Opens what is not a directory: files, but also pipes and devices, which are read to their end. */
export async function readLocalFile(file: string): Promise<LocalSource> {
  const standing = await stat(file);
  if (standing.isFIFO()) return { stat: standing, size: undefined, chunks: readPipe(file) };
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
 * before. One that is there keeps its mode; what is not a file, such as a device,
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

/** How often to check whether somebody reads a named pipe. */
const PIPE_POLL_MS = 50;

/** What comes through a named pipe. A thread that waits for its other end would keep the program from ending. */
function readPipe(file: string): Chunks {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  return new net.Socket({ fd, readable: true, writable: false });
}

/** Writes into a named pipe, once somebody reads it. */
async function writePipe(file: string, chunks: Chunks, signal: AbortSignal): Promise<void> {
  let fd = openForWriting(file);
  for (; fd === undefined; fd = openForWriting(file)) await sleep(PIPE_POLL_MS, undefined, { signal });
  await pipeline(chunks, new net.Socket({ fd, readable: false, writable: true }), { signal });
}

/** Undefined while nobody reads the pipe. */
function openForWriting(pipe: string): number | undefined {
  try {
    return openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENXIO") return undefined;
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

/** Bytes as they come. */
export type Chunks = AsyncIterable<Uint8Array>;

/** Messages carry about this many bytes: fewer cost calls, more cost memory. The service takes 1 MiB at most. */
export const CHUNK_BYTES = 256 * 1024;

/** Puts small chunks together and divides large ones, so that each is worth a message. */
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

/** Gives chunks to a call that reads them. What fails in making them comes out as it is, not as the call's failure. */
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
