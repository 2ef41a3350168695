import { BerthError } from "../base/errors.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { OutputStream } from "../engine/port.ts";
import type { Spill } from "./spill.ts";
import {
  type Block,
  BlockQueue,
  costOf,
  drop,
  memoryOf,
  type Offsets,
  TranscriptReader,
} from "./transcript-reader.ts";

/** How much a transcript may hold, in bytes. */
export interface TranscriptLimits {
  /** Size of the window: the newest output of both streams. */
  readonly windowBytes: number;
  /** How far a process may be ahead of its lossless reader. Default and maximum: the window. */
  readonly aheadBytes?: number;
  /** Size of each head: the oldest output of each stream, which is always kept. */
  readonly headBytes: number;
  /** How much of the window is kept in memory. The rest is moved to disk, if there is a spill. */
  readonly memoryBytes: number;
  /**
   * Whether output that the lossless reader has read is kept while the window has room, because its caller may come
   * back for it; otherwise only while memory has room.
   */
  readonly keepRead: boolean;
}

/** Output from an earlier run of the service that a transcript starts with. */
export interface Wrote {
  readonly written: Offsets;
  /** In the order of arrival. */
  readonly blocks: readonly Block[];
}

/** The share of the event loop for readers that wait for output: thousands may be attached to one process. */
const turns = new TurnShare();
/** Chunks of at least this size become blocks of their own. Smaller ones are collected into one block. */
const OWN_BLOCK_BYTES = 8 * 1024;
const MAX_BLOCK_BYTES = 64 * 1024;
const FIRST_BLOCK_BYTES = 512;
/** A reader that has read nothing for this long counts as stopped. */
export const READING_MS = 50;
/** How much is written to disk at once. */
const SPILL_AT_ONCE_BYTES = 1024 * 1024;
/** Memory may exceed its limit by this factor while the disk catches up. */
const MEMORY_SLACK = 4;
/**
 * Blocks of the heads. The output of a program that writes to both streams in turn has a block for each write, and may
 * have smaller heads: at most this many writes.
 */
const MAX_HEAD_BLOCKS = 16 * 1024;
/** How far a process may always be ahead of its lossless reader, even if all transcripts together have no room left. */
const MIN_AHEAD_BYTES = 256 * 1024;

/**
 * The output of one process, with limits and offsets, for any number of readers. It holds the head of each stream and a
 * window of the newest output, in memory first, then on disk. Blocks are in the order of arrival, so that readers see
 * the streams interleaved as Berth saw them.
 *
 * One reader may be lossless: output that it has not read is never dropped, and {@link full} says when the process must
 * wait for it.
 */
export class Transcript {
  readonly #limits: TranscriptLimits;
  readonly #written: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #head = new BlockQueue();
  /** Where the head of each stream ends: its blocks begin before that. */
  readonly #headEnd: Record<OutputStream, number>;
  /** Just after the beginning of the last block in the head of each stream. */
  readonly #headWritten: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #window = new BlockQueue();
  #spill: Spill | undefined;
  /** Blocks up to this sequence number are on disk or on their way there. */
  #spilledTo = 0;
  #spilling: Promise<void> | undefined;
  #windowLimit: number;
  #windowCost = 0;
  #windowMemory = 0;
  #headCost = 0;
  #headMemory = 0;
  #sequence = 0;
  #last: Block | undefined;
  #lossless: TranscriptReader | undefined;
  #full = false;
  /** When the lossless reader last read something. */
  #readAt = Number.NEGATIVE_INFINITY;
  #ended = false;
  #isCleared = false;
  /** Callers that wait for a change; undefined if there are none. */
  #waiting: Set<() => void> | undefined;
  /** Called when {@link full} may have changed. */
  onRoom: () => void = () => {};
  /** Called when the amount it holds may have changed. */
  onHeld: () => void = () => {};
  /** Whether all transcripts together have no room left. Then the process must stay close to its lossless reader. */
  pressed: () => boolean = () => false;

  /**
   * @param spill takes the part of the window that memory should not hold; undefined: there is none.
   * @param wrote what it starts with. Default: nothing.
   */
  constructor(limits: TranscriptLimits, spill?: Spill, wrote?: Wrote) {
    this.#limits = limits;
    this.#windowLimit = limits.windowBytes;
    this.#headEnd = { stdout: limits.headBytes, stderr: limits.headBytes };
    this.#spill = spill;
    Object.assign(this.#written, wrote?.written);
    for (const block of wrote?.blocks ?? []) {
      this.#sequence = block.sequence;
      this.#hold(block);
    }
  }

  /** Bytes written to each stream so far. */
  get written(): Offsets {
    return this.#written;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Bytes that the lossless reader has not read; 0 without such a reader. */
  get ahead(): number {
    if (this.#lossless === undefined) return 0;
    const { stdout, stderr } = this.#lossless.offsets;
    return this.#written.stdout - stdout + (this.#written.stderr - stderr);
  }

  /**
   * Whether the process must wait for its lossless reader or for the disk. Once it waits, this stays true until half of
   * the room is free again. It may be ahead of an active reader only as far as memory allows, which avoids the disk; of
   * a stopped reader, as far as the window allows.
   */
  get full(): boolean {
    const { memoryBytes, aheadBytes = Number.POSITIVE_INFINITY } = this.#limits;
    const share = this.#full ? 0.5 : 1;
    const slack = memoryBytes * MEMORY_SLACK;
    const reading = performance.now() - this.#readAt < READING_MS;
    const own = reading ? memoryBytes / 2 : this.#spill === undefined ? slack : this.#windowLimit;
    const room = this.pressed() ? Math.min(own, MIN_AHEAD_BYTES) : own;
    const diskBehind = this.#spill !== undefined && this.#windowMemory > slack * share;
    const isAhead = this.ahead > Math.min(room, this.#windowLimit, aheadBytes) * share;
    this.#full = isAhead || diskBehind || this.#isFullOfUnread;
    return this.#full;
  }

  /** Whether what is not read takes more than the window has: many tiny blocks take more than their bytes. */
  get #isFullOfUnread(): boolean {
    const oldest = this.#window.first;
    return this.#windowCost > this.#windowLimit && oldest !== undefined && this.#isUnread(oldest);
  }

  /** Bytes held in memory. */
  get memoryBytes(): number {
    return this.#windowMemory + this.#headMemory;
  }

  /** Bytes held in memory and on disk. */
  get heldBytes(): number {
    return this.#windowCost + this.#headCost;
  }

  /** Adds output. The transcript then owns the chunk. */
  append(stream: OutputStream, chunk: Buffer): void {
    if (chunk.length === 0) return;
    const offset = this.#written[stream];
    this.#written[stream] = offset + chunk.length;
    if (!this.#gather(stream, chunk)) this.#addBlock(stream, offset, chunk);
    this.#trim();
    if (this.#windowMemory > this.#limits.memoryBytes) this.#relieveMemory();
    this.onHeld();
    this.#wake();
  }

  /** Ends the transcript: no more output will come. */
  end(): void {
    this.#ended = true;
    if (this.#last !== undefined) this.#seal(this.#last);
    this.#last = undefined;
    this.onHeld();
    this.#wake();
    this.#sealSpill(this.#spilling);
  }

  /**
   * Moves everything it holds to disk. Output added meanwhile may stay in memory. Returns whether there is a disk that
   * takes it.
   */
  async settle(): Promise<boolean> {
    await this.#spillInTurn(async () => {
      if (this.#last !== undefined) this.#seal(this.#last);
      this.#last = undefined;
      await this.#storeHead();
      await this.#spillDownTo(0);
    });
    if (this.#ended) this.#sealSpill();
    return this.#spill !== undefined;
  }

  /** All blocks, in the order of arrival. */
  *held(): Generator<Readonly<Block>> {
    const window = this.#window[Symbol.iterator]();
    let next = window.next();
    for (const block of this.#head) {
      for (; !next.done && next.value.sequence < block.sequence; next = window.next()) yield next.value;
      yield block;
    }
    for (; !next.done; next = window.next()) yield next.value;
  }

  /** Drops about this many bytes of the window, oldest first, except what the lossless reader has not read yet. */
  giveWay(bytes: number): void {
    this.#dropDownTo(this.#windowCost - bytes);
    this.onHeld();
  }

  /** Drops the window, except what the lossless reader has not read yet. For the transcript of an ended process. */
  shrink(): void {
    this.#windowLimit = 0;
    this.#trim();
    this.onHeld();
  }

  /** Drops the head too, once the lossless reader has read everything. */
  clear(): void {
    this.#isCleared = true;
    this.shrink();
  }

  #dropHead(): void {
    for (let block = this.#head.first; block !== undefined; block = this.#head.first) {
      this.#head.shift();
      this.#headCost -= costOf(block);
      this.#headMemory -= memoryOf(block);
      drop(block);
    }
  }

  /**
   * Creates a reader that starts at the given offsets.
   * @throws `OFFSET_OUT_OF_RANGE` for an offset beyond the bytes written.
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
        this.#readAt = performance.now();
        this.#trim();
        this.onHeld();
        this.onRoom();
      },
    });
  }

  /** Makes a reader the lossless one. Undefined: no reader is lossless. */
  setLossless(reader: TranscriptReader | undefined): void {
    this.#lossless = reader;
    this.#trim();
    this.onHeld();
    this.onRoom();
  }

  /**
   * Resolves with true when output was added, the transcript ended or the signal was aborted; with false after
   * `timeoutMs`.
   */
  async changed(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    if (this.#ended || signal.aborted) return true;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(resolve, timeoutMs, false);
    const onChange = (): void => resolve(true);
    this.#waiting ??= new Set();
    this.#waiting.add(onChange);
    signal.addEventListener("abort", onChange, { once: true });
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting?.delete(onChange);
      signal.removeEventListener("abort", onChange);
    }
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting !== undefined) void turns.wakeEach(waiting);
  }

  /** Adds a small chunk to the last block if that block is of the same stream and has room. */
  #gather(stream: OutputStream, chunk: Buffer): boolean {
    const last = this.#last;
    if (last === undefined || last.stream !== stream) return false;
    const length = last.length + chunk.length;
    if (length > MAX_BLOCK_BYTES || !Buffer.isBuffer(last.content)) return false;
    if (length > last.content.length) {
      this.#resize(last, Math.min(MAX_BLOCK_BYTES, Math.max(last.content.length * 2, length)));
    }
    chunk.copy(last.content as Buffer, last.length);
    last.length = length;
    return true;
  }

  #addBlock(stream: OutputStream, offset: number, chunk: Buffer): void {
    if (this.#last !== undefined) this.#seal(this.#last);
    const own = chunk.length >= OWN_BLOCK_BYTES;
    const content = own ? chunk : Buffer.allocUnsafeSlow(Math.max(FIRST_BLOCK_BYTES, chunk.length));
    if (!own) chunk.copy(content);
    const block: Block = { sequence: ++this.#sequence, stream, offset, length: chunk.length, content };
    this.#last = own ? undefined : block;
    this.#hold(block);
  }

  #hold(block: Block): void {
    if (this.#isHead(block)) {
      this.#head.push(block);
      this.#headCost += costOf(block);
      this.#headMemory += memoryOf(block);
      this.#headWritten[block.stream] = block.offset + 1;
      if (this.#head.size === MAX_HEAD_BLOCKS) Object.assign(this.#headEnd, this.#headWritten);
      return;
    }
    this.#window.push(block);
    this.#windowCost += costOf(block);
    this.#windowMemory += memoryOf(block);
  }

  #isHead(block: Block): boolean {
    return block.offset < this.#headEnd[block.stream];
  }

  /** Frees the unused room of a block. */
  #seal(block: Block): void {
    if (memoryOf(block) > block.length) this.#resize(block, block.length);
  }

  #resize(block: Block, size: number): void {
    const content = Buffer.allocUnsafeSlow(size);
    (block.content as Buffer).copy(content, 0, 0, block.length);
    const grown = size - memoryOf(block);
    block.content = content;
    if (this.#isHead(block)) {
      this.#headCost += grown;
      this.#headMemory += grown;
      return;
    }
    this.#windowCost += grown;
    this.#windowMemory += grown;
  }

  /** Drops the oldest blocks of the window, as far as the limits require and the lossless reader allows. */
  #trim(): void {
    // Without a spill, memory has its own limit. With one, the process waits for the disk.
    const memoryLimit =
      this.#spill === undefined ? this.#limits.memoryBytes * MEMORY_SLACK : Number.POSITIVE_INFINITY;
    this.#dropDownTo(this.#windowLimit, memoryLimit);
    if (this.#isCleared && this.ahead === 0) this.#dropHead();
  }

  #dropDownTo(bytes: number, memoryBytes = Number.POSITIVE_INFINITY): void {
    while (this.#windowCost > bytes || this.#windowMemory > memoryBytes) {
      const oldest = this.#window.first;
      if (oldest === undefined || oldest === this.#last || this.#isUnread(oldest)) return;
      this.#dropOldest(oldest);
    }
  }

  #dropOldest(oldest: Block): void {
    this.#windowCost -= costOf(oldest);
    this.#windowMemory -= memoryOf(oldest);
    this.#window.shift();
    drop(oldest);
  }

  #isUnread(block: Block): boolean {
    return this.#lossless !== undefined && this.#lossless.offsets[block.stream] < block.offset + block.length;
  }

  /** Drops what no caller will come back for, and moves the rest to disk. */
  #relieveMemory(): void {
    while (this.#lossless !== undefined && !this.#limits.keepRead) {
      const oldest = this.#window.first;
      if (oldest === undefined || oldest === this.#last || this.#isUnread(oldest)) break;
      this.#dropOldest(oldest);
      if (this.#windowMemory <= this.#limits.memoryBytes) return;
    }
    if (this.#spill === undefined || this.#spilling !== undefined) return;
    void this.#spillInTurn(() => this.#spillDownTo(this.#limits.memoryBytes / 2));
  }

  /** Queues a write to the spill, which accepts only one at a time. */
  #spillInTurn(work: () => Promise<void>): Promise<void> {
    const turn = (this.#spilling === undefined ? work() : this.#spilling.then(work)).finally(() => {
      if (this.#spilling === turn) this.#spilling = undefined;
    });
    this.#spilling = turn;
    return turn;
  }

  /** Moves the oldest blocks of the window to disk until at most this many of its bytes are in memory. */
  async #spillDownTo(bytes: number): Promise<void> {
    while (this.#spill !== undefined && this.#windowMemory > bytes) {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      const before = batch.map(memoryOf);
      await this.#store(batch);
      batch.forEach((block, index) => {
        // A block that was dropped meanwhile is no longer counted.
        if (this.#window.after(block.sequence - 1) !== block) drop(block);
        else this.#windowMemory -= (before[index] ?? 0) - memoryOf(block);
      });
      this.onHeld();
      this.onRoom();
    }
  }

  async #storeHead(): Promise<void> {
    if (this.#headMemory === 0) return;
    const blocks = [...this.#head].filter((block) => memoryOf(block) > 0);
    const before = blocks.map(memoryOf);
    await this.#store(blocks);
    blocks.forEach((block, index) => {
      // A block that was dropped meanwhile is no longer counted.
      if (this.#head.after(block.sequence - 1) !== block) drop(block);
      else this.#headMemory -= (before[index] ?? 0) - memoryOf(block);
    });
    this.onHeld();
  }

  /** The oldest blocks that are not on disk, as many as fit into one write. */
  #nextBatch(): Block[] {
    const batch: Block[] = [];
    let bytes = 0;
    while (bytes < SPILL_AT_ONCE_BYTES) {
      const block = this.#window.after(this.#spilledTo);
      if (block === undefined || block === this.#last) break;
      this.#spilledTo = block.sequence;
      batch.push(block);
      bytes += block.length;
    }
    return batch;
  }

  async #store(blocks: readonly Block[]): Promise<void> {
    const inMemory = blocks.filter((block) => Buffer.isBuffer(block.content));
    if (this.#spill === undefined || inMemory.length === 0) return;
    try {
      const stored = await this.#spill.write(
        inMemory.map(({ content, length }) => (content as Buffer).subarray(0, length)),
      );
      inMemory.forEach((block, index) => {
        block.content = stored[index] ?? block.content;
      });
    } catch {
      // The disk is full. From now on use only memory, with its own limit.
      this.#sealSpill();
      this.#spill = undefined;
      this.#trim();
    }
  }

  /** Releases resources that only writing needs. A later write opens them again. */
  #sealSpill(after: Promise<void> = Promise.resolve()): void {
    const spill = this.#spill;
    // If the close fails, there is nothing more to do.
    after.then(() => spill?.seal()).catch(() => {});
  }

  /** The first block with a larger sequence number. */
  #after(sequence: number): Block | undefined {
    const head = this.#head.after(sequence);
    const window = this.#window.after(sequence);
    if (head === undefined || window === undefined) return head ?? window;
    return head.sequence < window.sequence ? head : window;
  }
}
