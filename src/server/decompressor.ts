import { createGunzip } from "node:zlib";
import { Semaphore } from "async-mutex";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { messageTooLarge } from "./error-conversion.ts";

/** A few kB may become as much as a message may have, so what is decompressed at once is what such messages cost. */
const AT_ONCE = 2;
/** Larger than the pieces that Node cuts from a pool, so that each can be released. */
const PART_BYTES = 64 * 1024;

/** Decompresses the messages of all calls, a few at a time, in the order in which they came. */
export class Decompressor {
  readonly #places = new Semaphore(AT_ONCE);

  /**
   * Decompresses gzip.
   *
   * @param signal of the call; one that ends while it waits costs no work
   * @throws BerthError `MESSAGE_TOO_LARGE` as soon as there are more than `maxBytes`; `INVALID_ARGUMENT` for what is no
   *   gzip; the signal's reason
   */
  gunzip(bytes: Uint8Array, maxBytes: number, signal: AbortSignal): Promise<Uint8Array> {
    return this.#places.runExclusive(() => {
      throwIfAborted(signal);
      // gRPC allows that an empty message is sent as it is.
      return bytes.length === 0 ? bytes : gunzip(bytes, maxBytes);
    });
  }
}

async function gunzip(bytes: Uint8Array, maxBytes: number): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let size = 0;
  const stream = createGunzip({ chunkSize: PART_BYTES });
  stream.end(bytes);
  try {
    for await (const part of stream as AsyncIterable<Buffer>) {
      parts.push(part);
      size += part.length;
      if (size > maxBytes) throw messageTooLarge(maxBytes);
    }
    return Buffer.concat(parts, size);
  } catch (cause) {
    if (cause instanceof BerthError) throw cause;
    throw new BerthError("INVALID_ARGUMENT", "The message cannot be decompressed: it is not valid gzip.", {
      cause,
    });
  } finally {
    parts.forEach(release);
  }
}

/**
 * Gives the memory of a part back at once: the engine collects garbage of this
 * kind only after every 64 MB of it, which a flood of messages makes in a
 * moment. A part that does not reach the end of its buffer is left alone, as
 * zlib may still write behind it.
 */
function release({ buffer, byteOffset, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && byteOffset + length === buffer.byteLength) buffer.transfer(0);
}
