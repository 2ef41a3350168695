import type { OutputStream } from "../engine/port.ts";
import type { StoredBytes } from "./spill.ts";

/** What a reader gets. */
export type TranscriptItem =
  | {
      readonly type: "output";
      readonly stream: OutputStream;
      readonly offset: number;
      readonly data: Uint8Array;
    }
  | { readonly type: "gap"; readonly stream: OutputStream; readonly from: number; readonly to: number };

/** A place in each stream, in bytes from its start. */
export type Offsets = Readonly<Record<OutputStream, number>>;

/** What a reader needs of its transcript. */
interface ReaderSource {
  /** The first block held whose sequence is larger. */
  after(sequence: number): Block | undefined;
  /** The block that may still grow. */
  last(): Block | undefined;
  readonly written: Offsets;
  onRead(reader: TranscriptReader): void;
}

/** Reads a transcript at its own speed. */
export class TranscriptReader {
  readonly #source: ReaderSource;
  readonly #offsets: Record<OutputStream, number>;
  #sequence = 0;

  constructor(from: Offsets, source: ReaderSource) {
    this.#source = source;
    this.#offsets = { ...from };
  }

  /** Where this reader is in each stream. */
  get offsets(): Offsets {
    return this.#offsets;
  }

  /**
   * The next output or gap; undefined when there is nothing more for now. A
   * promise where it has to be read from disk: wait for it before the next.
   */
  next(): TranscriptItem | undefined | Promise<TranscriptItem> {
    const source = this.#source;
    for (let block = source.after(this.#sequence); block; block = source.after(this.#sequence)) {
      const { stream } = block;
      const at = this.#offsets[stream];
      const end = block.offset + block.length;
      if (at < block.offset) return this.#skipTo(stream, block.offset);
      // A block that may still grow is passed only when something follows it.
      if (block !== source.last()) this.#sequence = block.sequence;
      if (at < end) return this.#take(block, at, end);
      if (block === source.last()) return undefined;
    }
    return this.#missingEnd();
  }

  #take(block: Block, at: number, end: number): TranscriptItem | Promise<TranscriptItem> {
    const { stream, offset, content, length } = block;
    // The read begins before the offset moves on, after which the block may go.
    const data = Buffer.isBuffer(content)
      ? content.subarray(at - offset, length)
      : content.read(at - offset, length);
    this.#offsets[stream] = end;
    this.#source.onRead(this);
    if (!(data instanceof Promise)) return { type: "output", stream, offset: at, data };
    return data.then(
      (bytes) => ({ type: "output", stream, offset: at, data: bytes }),
      // Bytes that the disk does not return are missing, and reported so.
      () => ({ type: "gap", stream, from: at, to: end }),
    );
  }

  /** Where the newest output was dropped, no block follows to reveal the gap. */
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

/** Consecutive bytes of one stream, in the order they came. */
export interface Block {
  /** Place among all blocks of the transcript. */
  readonly sequence: number;
  readonly stream: OutputStream;
  readonly offset: number;
  length: number;
  /** In memory, perhaps with room to grow; or on disk. */
  content: Buffer | StoredBytes;
}

/** What a block costs beside its bytes, so that a flood of tiny ones stays bounded. */
const BLOCK_COST_BYTES = 160;

/** What a block takes of the window. */
export function costOf(block: { readonly length: number; readonly content: unknown }): number {
  return (Buffer.isBuffer(block.content) ? block.content.length : block.length) + BLOCK_COST_BYTES;
}

/** What a block takes of memory. */
export function memoryOf(block: Block): number {
  return Buffer.isBuffer(block.content) ? block.content.length : 0;
}

/** Frees what a block takes of the disk. */
export function drop(block: Block): void {
  if (!Buffer.isBuffer(block.content)) block.content.drop();
}

/** Blocks in their order, removed at the front and added at the end. */
export class BlockQueue {
  #blocks: (Block | undefined)[] = [];
  /** Places before this one are empty; the array is cut now and then. */
  #start = 0;

  get first(): Block | undefined {
    return this.#blocks[this.#start];
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

  /** The first block whose sequence is larger. */
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
