import { TurnShare } from "../../base/turn-share.ts";

/**
 * A tar that is already in memory may have a million entries, or holes. So all tars being read share a part of each
 * turn of the event loop.
 */
const turns = new TurnShare();

/** Reads any number of bytes from chunks of any size. */
export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #brokenOff: () => Error;
  #held: Buffer = Buffer.alloc(0);

  /** @param brokenOff creates the error for a source that ends too early */
  constructor(chunks: AsyncIterable<Uint8Array>, brokenOff: () => Error) {
    this.#chunks = chunks[Symbol.asyncIterator]();
    this.#brokenOff = brokenOff;
  }

  /** Returns exactly this many bytes; undefined at the end. Throws if fewer are left. */
  async take(count: number): Promise<Buffer | undefined> {
    const turn = turns.enter();
    if (turn) await turn;
    if (this.#held.length < count) {
      const parts = [this.#held];
      let bytes = this.#held.length;
      while (bytes < count) {
        const next = await this.#next();
        if (next === undefined && bytes === 0) return undefined;
        if (next === undefined) throw this.#brokenOff();
        parts.push(next);
        bytes += next.length;
      }
      this.#held = Buffer.concat(parts, bytes);
    }
    const taken = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return taken;
  }

  /** Returns what is available: at least one byte, at most this many. Throws at the end. */
  async some(max: number): Promise<Buffer> {
    const turn = turns.enter();
    if (turn) await turn;
    while (this.#held.length === 0) {
      const next = await this.#next();
      if (next === undefined) throw this.#brokenOff();
      this.#held = next;
    }
    const taken = this.#held.subarray(0, max);
    this.#held = this.#held.subarray(taken.length);
    return taken;
  }

  /** Skips this many bytes. Throws if fewer are left. */
  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) left -= (await this.some(left)).length;
  }

  /** Skips the rest if it is at most this many bytes; otherwise returns false. */
  async skipRest(max: number): Promise<boolean> {
    let bytes = this.#held.length;
    this.#held = Buffer.alloc(0);
    while (bytes <= max) {
      const next = await this.#next();
      if (next === undefined) return true;
      bytes += next.length;
    }
    return false;
  }

  async #next(): Promise<Buffer | undefined> {
    const { done, value } = await this.#chunks.next();
    return done ? undefined : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
}
