import type { OutputStream } from "../engine/port.ts";
import type { Block } from "./block.ts";

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

/** What a reader needs of its transcript. */
export interface ReaderSource {
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
      // A block that may still grow is not left behind before something follows it.
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
      // What the disk does not give back is missing, and said to be.
      () => ({ type: "gap", stream, from: at, to: end }),
    );
  }

  /** Where the newest output was dropped, nothing follows it to show the gap. */
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
