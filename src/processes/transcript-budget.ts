import { TurnShare } from "../base/turn-share.ts";
import type { Transcript } from "./transcript.ts";

/** Limits for all transcripts together, in bytes. */
interface TranscriptBounds {
  /** In memory and on disk, in total. */
  readonly bytes: number;
  /** In memory and on disk, per owner. */
  readonly ownerBytes: number;
  /** In memory, in total. Beyond it, output is moved to disk. */
  readonly memoryBytes: number;
}

/** The part of a transcript that its budget uses. */
export interface BudgetedTranscript
  extends Pick<
    Transcript,
    | "ended"
    | "ahead"
    | "heldBytes"
    | "memoryBytes"
    | "onHeld"
    | "pressed"
    | "giveWay"
    | "shrink"
    | "clear"
    | "settle"
  > {
  /** Whether it must be read from the database before a part of it can be dropped. */
  readonly isUnread?: boolean;
}

/** How much transcripts hold, in bytes. */
interface TranscriptUsage {
  readonly bytes: number;
  readonly memoryBytes: number;
}

/** The share of the event loop for transcripts that must be read: an owner may have ten thousand. */
const turns = new TurnShare();

/** After an attempt that could not make enough room, the next one waits this long, or until this much more is held. */
const LOOK_AGAIN_MS = 50;
const LOOK_AGAIN_BYTES = 256 * 1024;

/**
 * Limits the transcripts of all processes, and those of each owner. Beyond a limit, output of the owner that holds most
 * is dropped: of ended processes first, oldest first, windows before heads; then the largest window of a running
 * process. Readers see a gap. Output that a lossless reader has not read is never dropped: its process waits instead.
 *
 * Output beyond the limit in memory is moved to disk, in the same order. What the disk does not take is dropped.
 */
export class TranscriptBudget {
  readonly bounds: TranscriptBounds;
  readonly #quotaOf: (owner: string) => number | undefined;
  readonly #owners = new Map<string, Account>();
  readonly #settling = new Set<BudgetedTranscript>();
  /** Those that the disk did not take, for instance because it was full. */
  readonly #refused = new WeakSet<BudgetedTranscript>();
  #bytes = 0;
  #memoryBytes = 0;
  #looking = false;
  #lookAfter = 0;
  #lookAtBytes = 0;

  /** @param quotaOf returns the owner's own smaller limit, if it has one. */
  constructor(bounds: TranscriptBounds, quotaOf: (owner: string) => number | undefined = () => undefined) {
    this.bounds = bounds;
    this.#quotaOf = quotaOf;
  }

  /** Counts a transcript, from now until it is empty. */
  watch(owner: string, transcript: BudgetedTranscript): void {
    transcript.onHeld = () => this.#update(owner, transcript);
    transcript.pressed = () =>
      this.#excess(owner) > 0 || (this.#memoryExcess > 0 && this.#refused.has(transcript));
    this.#update(owner, transcript);
  }

  /** Counts `next` instead of a transcript that its process no longer needs. */
  replace(owner: string, former: BudgetedTranscript, next: BudgetedTranscript): void {
    former.onHeld = () => {};
    former.pressed = () => false;
    this.#update(owner, former, { bytes: 0, memoryBytes: 0 });
    this.watch(owner, next);
  }

  /** How much all transcripts hold. */
  get usage(): TranscriptUsage {
    return { bytes: this.#bytes, memoryBytes: this.#memoryBytes };
  }

  /** How much an owner's transcripts hold in memory and on disk. */
  ownerBytes(owner: string): number {
    return this.#owners.get(owner)?.bytes ?? 0;
  }

  /** How much an owner's transcripts may hold in memory and on disk. */
  ownerLimit(owner: string): number {
    return Math.min(this.bounds.ownerBytes, this.#quotaOf(owner) ?? Number.POSITIVE_INFINITY);
  }

  #update(owner: string, transcript: BudgetedTranscript, held = usageOf(transcript)): void {
    const known = this.#owners.get(owner);
    // Most commands write nothing.
    if (held.bytes === 0 && !known?.counts(transcript)) return;
    const account = known ?? new Account();
    const grown = account.update(transcript, held);
    this.#bytes += grown.bytes;
    this.#memoryBytes += grown.memoryBytes;
    if (account.isEmpty) this.#owners.delete(owner);
    else this.#owners.set(owner, account);
    const over = this.#excess(owner) > 0 || this.#memoryExcess > 0;
    if (!over || this.#looking) return;
    if (performance.now() < this.#lookAfter && this.#bytes < this.#lookAtBytes) return;
    this.#looking = true;
    queueMicrotask(() => void this.#look(owner));
  }

  async #look(owner: string): Promise<void> {
    for (const { isUnread } of this.#makeRoom(owner)) {
      const turn = isUnread ? turns.enter() : undefined;
      if (turn) await turn;
    }
    this.#relieveMemory();
    this.#looking = false;
  }

  /** How many bytes the owner's transcripts, or all transcripts, are over their limit. */
  #excess(owner: string): number {
    return Math.max(this.ownerBytes(owner) - this.ownerLimit(owner), this.#bytes - this.bounds.bytes);
  }

  /** How many bytes all transcripts are over their limit in memory. */
  get #memoryExcess(): number {
    return this.#memoryBytes - this.bounds.memoryBytes;
  }

  /** See {@link Account.giveWay}. */
  *#makeRoom(owner: string): Generator<BudgetedTranscript> {
    const { bytes } = this.bounds;
    yield* this.#owners.get(owner)?.giveWay(this.ownerLimit(owner)) ?? [];
    while (this.#bytes > bytes) {
      const account = this.#largest();
      const before = this.#bytes;
      yield* account?.giveWay(account.bytes - (before - bytes)) ?? [];
      // The rest has not been read by lossless readers yet.
      if (this.#bytes >= before) break;
    }
    if (this.#excess(owner) > 0) this.#rest();
  }

  /** Call this after an attempt that could not make enough room. */
  #rest(): void {
    this.#lookAfter = performance.now() + LOOK_AGAIN_MS;
    this.#lookAtBytes = this.#bytes + LOOK_AGAIN_BYTES;
  }

  #largest(): Account | undefined {
    let largest: Account | undefined;
    for (const account of this.#owners.values()) {
      if (largest === undefined || account.bytes > largest.bytes) largest = account;
    }
    return largest;
  }

  #relieveMemory(): void {
    let left = this.#memoryExcess;
    for (const transcript of this.#settling) left -= transcript.memoryBytes;
    if (left <= 0) return;
    const largestFirst = [...this.#owners.values()].sort((a, b) => b.memoryBytes - a.memoryBytes);
    const all = largestFirst.flatMap((account) => [...account.inMemory()]);
    for (const transcript of all.filter((one) => !this.#settling.has(one))) {
      if (left <= 0) return;
      left -= transcript.memoryBytes;
      if (this.#refused.has(transcript)) {
        dropAll(transcript);
        left += transcript.memoryBytes;
      } else void this.#moveToDisk(transcript);
    }
    if (left > 0) this.#rest();
  }

  async #moveToDisk(transcript: BudgetedTranscript): Promise<void> {
    this.#settling.add(transcript);
    const isTaken = await transcript.settle().catch(() => false);
    this.#settling.delete(transcript);
    if (isTaken) return;
    this.#refused.add(transcript);
    this.#relieveMemory();
  }
}

/** Drops everything that a lossless reader is not still to read, except for the head of a running process. */
function dropAll(transcript: BudgetedTranscript): void {
  transcript.giveWay(transcript.heldBytes);
  if (transcript.ended && transcript.ahead === 0) transcript.clear();
}

function usageOf({ heldBytes, memoryBytes }: BudgetedTranscript): TranscriptUsage {
  return { bytes: heldBytes, memoryBytes };
}

class Account {
  bytes = 0;
  memoryBytes = 0;
  readonly #held = new Map<BudgetedTranscript, TranscriptUsage>();
  /** Running processes' transcripts, in the order of their first output. */
  readonly #live = new Set<BudgetedTranscript>();
  /** Ended processes' transcripts in the order of their ends: those with a window, and those with only a head. */
  readonly #whole = new Set<BudgetedTranscript>();
  readonly #heads = new Set<BudgetedTranscript>();

  get isEmpty(): boolean {
    return this.#held.size === 0;
  }

  /** Whether a transcript held something when it was last recorded. */
  counts(transcript: BudgetedTranscript): boolean {
    return this.#held.has(transcript);
  }

  /** Records how much a transcript holds now; returns how much that has grown. */
  update(transcript: BudgetedTranscript, now: TranscriptUsage): TranscriptUsage {
    const before = this.#held.get(transcript) ?? { bytes: 0, memoryBytes: 0 };
    this.bytes += now.bytes - before.bytes;
    this.memoryBytes += now.memoryBytes - before.memoryBytes;
    if (now.bytes === 0) {
      for (const held of [this.#held, this.#live, this.#whole, this.#heads]) held.delete(transcript);
    } else {
      this.#held.set(transcript, now);
      if (!transcript.ended) this.#live.add(transcript);
      else {
        this.#live.delete(transcript);
        if (!this.#heads.has(transcript)) this.#whole.add(transcript);
      }
    }
    return { bytes: now.bytes - before.bytes, memoryBytes: now.memoryBytes - before.memoryBytes };
  }

  /**
   * Drops output until at most this much is held, as far as lossless readers allow. Yields the transcript of an ended
   * process before dropping its window.
   */
  *giveWay(bytes: number): Generator<BudgetedTranscript> {
    for (const transcript of this.#whole) {
      if (this.bytes <= bytes) return;
      yield transcript;
      // Meanwhile it may have been read, and then another one stands for it.
      if (!this.#whole.delete(transcript)) continue;
      this.#heads.add(transcript);
      transcript.shrink();
    }
    for (const transcript of this.#heads) {
      if (this.bytes <= bytes) return;
      if (transcript.ahead === 0) transcript.clear();
    }
    if (this.bytes <= bytes) return;
    const largestFirst = [...this.#live].sort((a, b) => b.heldBytes - a.heldBytes);
    for (const transcript of largestFirst) {
      if (this.bytes <= bytes) return;
      transcript.giveWay(this.bytes - bytes);
    }
  }

  /** Transcripts that hold memory, in the order in which to move them to disk. */
  *inMemory(): Generator<BudgetedTranscript> {
    const live = [...this.#live].sort((a, b) => b.memoryBytes - a.memoryBytes);
    for (const transcript of [...this.#whole, ...this.#heads, ...live]) {
      if (transcript.memoryBytes > 0) yield transcript;
    }
  }
}
