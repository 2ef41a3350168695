/** Small pieces are combined up to this length, because each has an overhead of about two hundred bytes. */
const JOINED_BYTES = 4096;

/**
 * Bytes that have arrived and were not taken. Copies only small pieces, so that a flood of them takes little more memory
 * than their bytes.
 */
export class ByteQueue {
  #chunks: Uint8Array[] = [];
  /** The buffer into which small pieces are combined. */
  #joined: Buffer<ArrayBuffer> | undefined;
  size = 0;

  push(chunk: Uint8Array): void {
    if (!this.#join(chunk)) this.#chunks.push(chunk);
    this.size += chunk.length;
  }

  /** Appends a piece to the last one. Returns false if they are too long for that. */
  #join(chunk: Uint8Array): boolean {
    let last = this.#chunks.at(-1);
    if (last === undefined) return false;
    if (last.buffer !== this.#joined?.buffer) {
      if (last.length + chunk.length > JOINED_BYTES) return false;
      this.#joined = Buffer.allocUnsafeSlow(JOINED_BYTES);
      this.#joined.set(last);
      last = this.#joined.subarray(0, last.length);
    }
    const end = last.byteOffset + last.length;
    if (end + chunk.length > JOINED_BYTES) return false;
    // Bytes before this position may already have been taken.
    this.#joined.set(chunk, end);
    this.#chunks[this.#chunks.length - 1] = this.#joined.subarray(last.byteOffset, end + chunk.length);
    return true;
  }

  /** The first `length` bytes. Undefined if fewer have arrived. */
  peek(length: number): Buffer | undefined {
    if (this.size < length) return undefined;
    const [first] = this.#chunks;
    if (first !== undefined && first.length >= length) return asBuffer(first).subarray(0, length);
    return Buffer.concat(this.#chunks, length);
  }

  /** Removes the first `length` bytes, which must have arrived. Copies them only if they arrived in several pieces. */
  take(length: number): Buffer {
    let count = 0;
    let bytes = 0;
    for (; bytes < length; count++) bytes += this.#chunks[count]?.length ?? 0;
    const taken = this.#chunks.splice(0, count);
    const last = asBuffer(taken.at(-1));
    if (bytes > length) this.#chunks.unshift(last.subarray(last.length - (bytes - length)));
    this.size -= length;
    return taken.length === 1 ? last.subarray(0, length) : Buffer.concat(taken, length);
  }
}

function asBuffer(bytes: Uint8Array = new Uint8Array()): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
