import type { Transcript } from "./transcript.ts";

const MIB = 1024 * 1024;
/** What they may hold in memory together; what is beyond goes to disk. */
const MOST_MEMORY_BYTES = 32 * MIB;
/** What they may hold in all; what is beyond goes, windows before heads, the oldest first. */
const MOST_BYTES = 1024 * MIB;

/** The transcripts of processes that have ended: kept within bounds. */
export class EndedTranscripts {
  /** By what each holds there, oldest first. */
  readonly #inMemory = new Tally();
  readonly #whole = new Tally();
  readonly #heads = new Tally();

  add(transcript: Transcript): void {
    this.#inMemory.set(transcript, transcript.memoryBytes);
    this.#whole.set(transcript, transcript.heldBytes);
    this.#bound();
  }

  /** Drops one for good. */
  remove(transcript: Transcript): void {
    for (const tally of [this.#inMemory, this.#whole, this.#heads]) tally.delete(transcript);
    transcript.clear();
  }

  #bound(): void {
    for (const transcript of this.#inMemory.beyond(MOST_MEMORY_BYTES)) {
      this.#inMemory.delete(transcript);
      transcript.settle().catch(() => {
        // The disk takes it no more. Its bound in memory holds all the same.
      });
    }
    for (const transcript of this.#whole.beyond(MOST_BYTES)) {
      this.#whole.delete(transcript);
      transcript.shrink();
      this.#heads.set(transcript, transcript.heldBytes);
    }
    for (const transcript of this.#heads.beyond(MOST_BYTES / 4)) this.remove(transcript);
  }
}

/** Adds up what transcripts hold. */
class Tally {
  readonly #bytes = new Map<Transcript, number>();
  #sum = 0;

  set(transcript: Transcript, bytes: number): void {
    this.delete(transcript);
    this.#bytes.set(transcript, bytes);
    this.#sum += bytes;
  }

  delete(transcript: Transcript): void {
    this.#sum -= this.#bytes.get(transcript) ?? 0;
    this.#bytes.delete(transcript);
  }

  /** The oldest, one after another, while the sum is beyond a bound. */
  *beyond(most: number): Generator<Transcript> {
    for (const transcript of this.#bytes.keys()) {
      if (this.#sum <= most) return;
      yield transcript;
    }
  }
}
