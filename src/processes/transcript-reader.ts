import type { OutputStream } from "../engine/port.ts";
import type { StoredBytes } from "./spill.ts";

/** What a reader returns. */
export type TranscriptItem =
  | {
      readonly type: "output";
      readonly stream: OutputStream;
      readonly offset: number;
      readonly data: Uint8Array;
    }
  | { readonly type: "gap"; readonly stream: OutputStream; readonly from: number; readonly to: number };

/** A position in each stream, in bytes from its start. */
export type Offsets = Readonly<Record<OutputStream, number>>;

interface ReaderSource {
  /** The first block with a larger sequence number. */
  after(sequence: number): Block | undefined;
  /** The block that may still grow. */
  last(): Block | undefined;
  readonly written: Offsets;
  onRead(reader: TranscriptReader): void;
}

/** Reads a transcript at its own pace. */
export class TranscriptReader {
  readonly #source: ReaderSource;
  readonly #offsets: Record<OutputStream, number>;
  #sequence = 0;

  constructor(from: Offsets, source: ReaderSource) {
    this.#source = source;
    this.#offsets = { ...from };
  }

  /** This reader's position in each stream. */
  get offsets(): Offsets {
    return this.#offsets;
  }

  /**
   * Returns the next output or gap; undefined if there is nothing more for now. Returns a promise if it must read from
   * disk: await it before the next call.
   */
  next(): TranscriptItem | undefined | Promise<TranscriptItem> {
    const source = this.#source;
    for (let block = source.after(this.#sequence); block; block = source.after(this.#sequence)) {
      const { stream } = block;
      const at = this.#offsets[stream];
      const end = block.offset + block.length;
      if (at < block.offset) return this.#skipTo(stream, block.offset);
      // The last block may still grow, so only move past a block if another follows it.
      if (block !== source.last()) this.#sequence = block.sequence;
      if (at < end) return this.#take(block, at, end);
      if (block === source.last()) return undefined;
    }
    return this.#missingEnd();
  }

  #take(block: Block, at: number, end: number): TranscriptItem | Promise<TranscriptItem> {
    const { stream, offset, content, length } = block;
    // Start the read before advancing the offset: after that, the block may be dropped.
    const data = Buffer.isBuffer(content)
      ? content.subarray(at - offset, length)
      : content.read(at - offset, length);
    this.#offsets[stream] = end;
    this.#source.onRead(this);
    if (!(data instanceof Promise)) return { type: "output", stream, offset: at, data };
    return data.then(
      (bytes) => ({ type: "output", stream, offset: at, data: bytes }),
      // Report bytes that cannot be read from disk as missing.
      () => ({ type: "gap", stream, from: at, to: end }),
    );
  }

  /** The gap at the end, if the newest output was dropped: no later block reveals it. */
  #missingEnd(): TranscriptItem | undefined {
    const { written } = this.#source;
    for (const stream of ["stdout", "stderr"] as const) {
      if (this.#offsets[stream] < written[stream]) return this.#skipTo(stream, written[stream]);
    }
    return undefined;
  }

  #skipTo(stream: OutputStream, to: number): TranscriptItem {
    const from = this.#offsets[stream];
    this.#offsets[stream] = to;
    this.#source.onRead(this);
    return { type: "gap", stream, from, to };
  }
}

/** Consecutive bytes of one stream. */
export interface Block {
  /** Position among all blocks of the transcript. */
  readonly sequence: number;
  readonly stream: OutputStream;
  readonly offset: number;
  length: number;
  /** In memory, possibly with spare room, or on disk. */
  content: Buffer | StoredBytes;
}

/**
 * What a block counts besides its bytes, so that a flood of tiny blocks stays limited: some 150 bytes of memory wherever
 * its bytes are, and the time that it takes to store and to read its place with those of all others.
 */
const BLOCK_COST_BYTES = 2048;

/** How much of the window a block uses. */
export function costOf(block: { readonly length: number; readonly content: unknown }): number {
  return (Buffer.isBuffer(block.content) ? block.content.length : block.length) + BLOCK_COST_BYTES;
}

/** How much memory a block uses. */
export function memoryOf(block: Block): number {
  return Buffer.isBuffer(block.content) ? block.content.length : 0;
}

/** Frees a block's space on disk. */
export function drop(block: Block): void {
  if (!Buffer.isBuffer(block.content)) block.content.drop();
}

/** A queue of blocks by sequence, added at the end and removed at the front. */
export class BlockQueue {
  #blocks: (Block | undefined)[] = [];
  /** Index of the first block. Earlier slots are empty; the array is trimmed from time to time. */
  #start = 0;

  get first(): Block | undefined {
    return this.#blocks[this.#start];
  }

  get size(): number {
    return this.#blocks.length - this.#start;
  }

  push(block: Block): void {
    this.#blocks.push(block);
  }

  shift(): void {
    this.#blocks[this.#start++] = undefined;
    if (this.#start < 64 || this.#start * 2 < this.#blocks.length) return;
    this.#blocks = this.#blocks.slice(this.#start);
    this.#start = 0;
  }

  *[Symbol.iterator](): Generator<Block> {
    for (let at = this.#start; at < this.#blocks.length; at++) yield this.#blocks[at] as Block;
  }

  /** The first block with a larger sequence number. */
  after(sequence: number): Block | undefined {
    let low = this.#start;
    let high = this.#blocks.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#blocks[middle] as Block).sequence > sequence) high = middle;
      else low = middle + 1;
    }
    return this.#blocks[low];
  }
}
