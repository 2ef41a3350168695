import { BerthError } from "../core/errors.ts";
import type { OutputStream } from "../core/ports/engine.ts";

/** How much a transcript holds, in bytes. */
export interface TranscriptLimits {
  /** Of the newest output of both streams; also how far a process may be ahead of its lossless reader. */
  readonly windowBytes: number;
  /** Of the oldest output of each stream, kept for good. */
  readonly headBytes: number;
}

/** Chunks of this size or more are kept as they came; smaller ones are gathered. */
const OWN_BLOCK_BYTES = 8 * 1024;
const LARGEST_BLOCK_BYTES = 64 * 1024;
const FIRST_BLOCK_BYTES = 512;
/** What a block costs beside its bytes, so that a flood of tiny ones stays within the bound. */
const BLOCK_COST_BYTES = 160;

/** Consecutive bytes of one stream, in the order they came. */
interface Block {
  /** Place among all blocks of the transcript. */
  readonly sequence: number;
  readonly stream: OutputStream;
  readonly offset: number;
  buffer: Buffer;
  length: number;
}

/** What a reader gets. */
export type TranscriptItem =
  | {
      readonly type: "output";
      readonly stream: OutputStream;
      readonly offset: number;
      readonly data: Uint8Array;
    }
  | { readonly type: "gap"; readonly stream: OutputStream; readonly from: number; readonly to: number };

/** A place in each stream, in bytes from its begin. */
export type Offsets = Readonly<Record<OutputStream, number>>;

/**
 * The output of one process: bounded, with offsets, for any number of readers.
 * It holds the head of each stream and a window of the newest output. Blocks
 * come in the order of arrival, so that readers see the streams interleaved as
 * Berth did.
 *
 * One reader may be lossless: what it has not read is never dropped, and
 * {@link ahead} tells how far the process has run ahead of it.
 */
export class Transcript {
  readonly #limits: TranscriptLimits;
  readonly #written: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #head: Block[] = [];
  #window: Block[] = [];
  #windowLimit: number;
  /** Window blocks before this index are dropped; the array is cut now and then. */
  #windowStart = 0;
  #windowCost = 0;
  #sequence = 0;
  #last: Block | undefined;
  #lossless: TranscriptReader | undefined;
  #ended = false;
  readonly #waiting = new Set<() => void>();
  /** Called when the lossless reader has read something or has gone. */
  onRead: () => void = () => {};

  constructor(limits: TranscriptLimits) {
    this.#limits = limits;
    this.#windowLimit = limits.windowBytes;
  }

  /** Bytes written to each stream so far. */
  get written(): Offsets {
    return this.#written;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Bytes the lossless reader has not read; 0 without one. */
  get ahead(): number {
    if (this.#lossless === undefined) return 0;
    const { stdout, stderr } = this.#lossless.offsets;
    return this.#written.stdout - stdout + (this.#written.stderr - stderr);
  }

  /** Bytes held in memory, blocks' own cost included. */
  get heldBytes(): number {
    return this.#windowCost + this.#head.reduce((sum, block) => sum + block.buffer.length, 0);
  }

  /** Adds output. The chunk is the transcript's own from here on. */
  append(stream: OutputStream, chunk: Buffer): void {
    if (chunk.length === 0) return;
    const offset = this.#written[stream];
    this.#written[stream] = offset + chunk.length;
    if (!this.#gather(stream, chunk)) this.#addBlock(stream, offset, chunk);
    this.#trim();
    this.#wake();
  }

  /** Says that nothing more will come. */
  end(): void {
    this.#ended = true;
    if (this.#last !== undefined) this.#seal(this.#last);
    this.#last = undefined;
    this.#wake();
  }

  /** Drops the window, except for what the lossless reader still has to read. For an ended process's transcript. */
  shrink(): void {
    this.#windowLimit = 0;
    this.#trim();
  }

  /**
   * A reader from the given places on.
   * @throws `OFFSET_OUT_OF_RANGE` for a place beyond what was written.
   */
  reader(from: Offsets): TranscriptReader {
    for (const stream of ["stdout", "stderr"] as const) {
      if (from[stream] > this.#written[stream]) {
        throw new BerthError(
          "OFFSET_OUT_OF_RANGE",
          `${stream}_offset: ${from[stream]} lies beyond the ${this.#written[stream]} bytes written so far.`,
          { metadata: { field: `${stream}_offset`, written: String(this.#written[stream]) } },
        );
      }
    }
    return new TranscriptReader(from, {
      after: (sequence) => this.#after(sequence),
      last: () => this.#last,
      written: this.#written,
      onRead: (reader) => {
        if (reader !== this.#lossless) return;
        this.#trim();
        this.onRead();
      },
    });
  }

  /** Makes a reader the lossless one, or with undefined lets it go. */
  setLossless(reader: TranscriptReader | undefined): void {
    this.#lossless = reader;
    this.#trim();
    this.onRead();
  }

  /** Resolves with true when something was added, the transcript ended or the signal was aborted; with false after `timeoutMs`. */
  async changed(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    if (this.#ended || signal.aborted) return true;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(resolve, timeoutMs, false);
    const onChange = (): void => resolve(true);
    this.#waiting.add(onChange);
    signal.addEventListener("abort", onChange, { once: true });
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(onChange);
      signal.removeEventListener("abort", onChange);
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  /** Adds a small chunk to the last block where that is of the same stream and has room. */
  #gather(stream: OutputStream, chunk: Buffer): boolean {
    const last = this.#last;
    if (last === undefined || last.stream !== stream || last.length + chunk.length > LARGEST_BLOCK_BYTES)
      return false;
    if (last.length + chunk.length > last.buffer.length) {
      const size = Math.min(
        LARGEST_BLOCK_BYTES,
        Math.max(last.buffer.length * 2, last.length + chunk.length),
      );
      this.#replaceBuffer(last, size);
    }
    chunk.copy(last.buffer, last.length);
    last.length += chunk.length;
    return true;
  }

  #addBlock(stream: OutputStream, offset: number, chunk: Buffer): void {
    if (this.#last !== undefined) this.#seal(this.#last);
    const own = chunk.length >= OWN_BLOCK_BYTES;
    const buffer = own ? chunk : Buffer.allocUnsafeSlow(Math.max(FIRST_BLOCK_BYTES, chunk.length));
    if (!own) chunk.copy(buffer);
    const block: Block = { sequence: ++this.#sequence, stream, offset, buffer, length: chunk.length };
    this.#last = own ? undefined : block;
    if (this.#isHead(block)) this.#head.push(block);
    else {
      this.#window.push(block);
      this.#windowCost += buffer.length + BLOCK_COST_BYTES;
    }
  }

  #isHead(block: Block): boolean {
    return block.offset < this.#limits.headBytes;
  }

  /** Gives back the room a block will not use. */
  #seal(block: Block): void {
    if (block.buffer.length > block.length) this.#replaceBuffer(block, block.length);
  }

  #replaceBuffer(block: Block, size: number): void {
    const buffer = Buffer.allocUnsafeSlow(size);
    block.buffer.copy(buffer, 0, 0, block.length);
    if (!this.#isHead(block)) this.#windowCost += size - block.buffer.length;
    block.buffer = buffer;
  }

  /** Drops the oldest blocks of the window, as far as the bound asks and the lossless reader allows. */
  #trim(): void {
    while (this.#windowCost > this.#windowLimit) {
      const oldest = this.#window[this.#windowStart];
      if (oldest === undefined || oldest === this.#last || this.#isUnread(oldest)) break;
      this.#windowCost -= oldest.buffer.length + BLOCK_COST_BYTES;
      this.#windowStart++;
    }
    if (this.#windowStart > 64 && this.#windowStart * 2 > this.#window.length) {
      this.#window = this.#window.slice(this.#windowStart);
      this.#windowStart = 0;
    } else {
      // The dropped blocks' bytes go now, the array's places when it is cut.
      for (let i = this.#windowStart - 1; i >= 0 && this.#window[i] !== DROPPED; i--)
        this.#window[i] = DROPPED;
    }
  }

  #isUnread(block: Block): boolean {
    return this.#lossless !== undefined && this.#lossless.offsets[block.stream] < block.offset + block.length;
  }

  /** The first held block whose sequence is larger. */
  #after(sequence: number): Block | undefined {
    const head = firstAfter(this.#head, 0, sequence);
    const window = firstAfter(this.#window, this.#windowStart, sequence);
    if (head === undefined || window === undefined) return head ?? window;
    return head.sequence < window.sequence ? head : window;
  }
}

const DROPPED: Block = { sequence: 0, stream: "stdout", offset: 0, buffer: Buffer.alloc(0), length: 0 };

function firstAfter(blocks: readonly Block[], start: number, sequence: number): Block | undefined {
  let low = start;
  let high = blocks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((blocks[middle] as Block).sequence > sequence) high = middle;
    else low = middle + 1;
  }
  return blocks[low];
}

/** What a reader needs of its transcript. */
interface ReaderSource {
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

  /** The next output or gap; undefined when there is nothing more for now. */
  next(): TranscriptItem | undefined {
    for (
      let block = this.#source.after(this.#sequence);
      block !== undefined;
      block = this.#source.after(this.#sequence)
    ) {
      const { stream } = block;
      const at = this.#offsets[stream];
      const end = block.offset + block.length;
      if (at < block.offset) return this.#skipTo(stream, block.offset);
      // A block that may still grow is not left behind before something follows it.
      if (block !== this.#source.last()) this.#sequence = block.sequence;
      if (at < end) {
        const data = block.buffer.subarray(at - block.offset, block.length);
        this.#offsets[stream] = end;
        this.#source.onRead(this);
        return { type: "output", stream, offset: at, data };
      }
      if (block === this.#source.last()) return undefined;
    }
    return this.#missingEnd();
  }

  /** Where the newest output was dropped, nothing follows it to show the gap. */
  #missingEnd(): TranscriptItem | undefined {
    for (const stream of ["stdout", "stderr"] as const) {
      if (this.#offsets[stream] < this.#source.written[stream])
        return this.#skipTo(stream, this.#source.written[stream]);
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
