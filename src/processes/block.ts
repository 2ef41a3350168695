import type { OutputStream } from "../engine/port.ts";
import type { StoredBytes } from "./spill.ts";

/** Consecutive bytes of one stream, in the order they came. */
export interface Block {
  /** Place among all blocks of the transcript. */
  readonly sequence: number;
  readonly stream: OutputStream;
  readonly offset: number;
  length: number;
  /** In memory, with room to grow perhaps; or on disk. */
  content: Buffer | StoredBytes;
}

/** What a block costs beside its bytes, so that a flood of tiny ones stays within a bound. */
const BLOCK_COST_BYTES = 160;

/** What a block costs of the window. */
export function costOf(block: Block): number {
  return (Buffer.isBuffer(block.content) ? block.content.length : block.length) + BLOCK_COST_BYTES;
}

/** What a block holds of the memory. */
export function memoryOf(block: Block): number {
  return Buffer.isBuffer(block.content) ? block.content.length : 0;
}

/** Gives back what a block holds of the disk. */
export function drop(block: Block): void {
  if (!Buffer.isBuffer(block.content)) block.content.drop();
}

/** Blocks in their order, which go at the front and come at the end. */
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

  /** What all of them come to by a measure. */
  sum(measure: (block: Block) => number): number {
    let sum = 0;
    for (const block of this) sum += measure(block);
    return sum;
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
