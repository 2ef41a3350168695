import { TurnShare } from "../../base/event-loop.ts";

/** A tar that is all there already may have a million entries, or holes: all that are read share a part of each turn. */
const turns = new TurnShare();

/** Reads any number of bytes from chunks of any size. */
export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #brokenOff: () => Error;
  #held: Buffer = Buffer.alloc(0);

  /** @param brokenOff creates the error for chunks that end too early */
  constructor(chunks: AsyncIterable<Uint8Array>, brokenOff: () => Error) {
    this.#chunks = chunks[Symbol.asyncIterator]();
    this.#brokenOff = brokenOff;
  }

  /** Exactly so many bytes; undefined at the end. Throws where only a part of them is there. */
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

  /** What is there, at least one and at most so many bytes. Throws at the end. */
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

  /** Skips so many bytes. Throws where there are fewer. */
  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) left -= (await this.some(left)).length;
  }

  /** Skips the rest, up to so many bytes; false where there is more. */
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
