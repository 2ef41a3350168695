import { createGunzip } from "node:zlib";
import { BerthError } from "../base/errors.ts";
import { Turns } from "../base/turns.ts";
import { messageTooLarge } from "./error-conversion.ts";

/** A few kB may expand to the size limit of a message, so this bounds the memory for decompression. */
const AT_ONCE = 2;
/** Larger than the buffers that Node takes from its pool, so that each can be released. */
const PART_BYTES = 64 * 1024;

/** Decompresses the messages of all calls: a few at a time, in order of arrival. */
export class Decompressor {
  readonly #turns = new Turns(AT_ONCE);

  /**
   * Decompresses gzip.
   *
   * @param signal of the call. A call that ends while it waits is not decompressed.
   * @throws BerthError `MESSAGE_TOO_LARGE` as soon as the output exceeds `maxBytes`; `INVALID_ARGUMENT` if it is not
   *   gzip; the signal's reason
   */
  gunzip(bytes: Uint8Array, maxBytes: number, signal: AbortSignal): Promise<Uint8Array> {
    // gRPC allows an empty message to be sent uncompressed.
    return this.#turns.run(async () => (bytes.length === 0 ? bytes : gunzip(bytes, maxBytes)), signal);
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
 * Releases the memory of a part at once. V8 collects such garbage only after every 64 MB of it, which a flood of
 * messages produces in a moment. A part that does not reach the end of its buffer is left alone: zlib may still write
 * after it.
 */
function release({ buffer, byteOffset, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && byteOffset + length === buffer.byteLength) buffer.transfer(0);
}
