import { setImmediate as nextTurn } from "node:timers/promises";

/** A 4K screenshot in base64 has a few MiB; nothing that is asked for has more than this. */
const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;
/** What is kept of a message that is larger: enough to tell which request it answers. */
const HEAD_BYTES = 256;
/** How long messages are taken in one turn of the event loop. */
const SLICE_MS = 10;
const NOTHING = Buffer.alloc(0);

/** What takes messages and controls their flow. */
export interface MessageTarget {
  /** @param whole false where it is only the first bytes of a message that is too large. */
  message(bytes: Buffer, whole: boolean): void;
  /** Asks the source for no more until {@link resume}. */
  pause(): void;
  resume(): void;
}

/**
 * Splits what comes from a browser into messages, which end with NUL. Many
 * small messages are taken in slices of a few milliseconds, so that a page that
 * floods the pipe slows its own session alone.
 */
export class MessageStream {
  readonly #target: MessageTarget;
  readonly #waiting: Buffer[] = [];
  /** The beginning of a message whose end has not come. */
  #begun: Buffer = NOTHING;
  #bytes = 0;
  #isDraining = false;
  #isClosed = false;

  constructor(target: MessageTarget) {
    this.#target = target;
  }

  push(chunk: Buffer): void {
    if (this.#isClosed) return;
    this.#waiting.push(chunk);
    if (!this.#isDraining) void this.#drain();
  }

  /** Drops what has come, and all that comes. */
  close(): void {
    this.#isClosed = true;
    this.#waiting.length = 0;
    this.#begun = NOTHING;
    this.#bytes = 0;
  }

  async #drain(): Promise<void> {
    this.#isDraining = true;
    let isPaused = false;
    let end = performance.now() + SLICE_MS;
    for (let chunk = this.#waiting.shift(); chunk !== undefined; chunk = this.#waiting.shift()) {
      let from = 0;
      for (let to = chunk.indexOf(0); to !== -1 && !this.#isClosed; to = chunk.indexOf(0, from)) {
        this.#end(chunk.subarray(from, to));
        from = to + 1;
        if (performance.now() < end) continue;
        if (!isPaused) this.#target.pause();
        isPaused = true;
        await nextTurn();
        end = performance.now() + SLICE_MS;
      }
      this.#add(chunk.subarray(from));
    }
    this.#isDraining = false;
    if (isPaused) this.#target.resume();
  }

  #end(last: Buffer): void {
    // Most messages lie within one chunk, and need no copy.
    if (this.#bytes > 0) this.#add(last);
    const whole = this.#bytes <= MAX_MESSAGE_BYTES;
    const bytes = this.#bytes === 0 ? last : this.#begun.subarray(0, whole ? this.#bytes : HEAD_BYTES);
    this.#bytes = 0;
    this.#begun = NOTHING;
    if (bytes.length > 0) this.#target.message(bytes, whole);
  }

  #add(part: Buffer): void {
    const end = this.#bytes + part.length;
    if (end > this.#begun.length && this.#bytes <= MAX_MESSAGE_BYTES) {
      const longer = Buffer.allocUnsafe(Math.min(Math.max(end, 2 * this.#begun.length), MAX_MESSAGE_BYTES));
      this.#begun.copy(longer, 0, 0, this.#bytes);
      this.#begun = longer;
    }
    // Past the bound, only the length still counts.
    part.copy(this.#begun, Math.min(this.#bytes, this.#begun.length));
    this.#bytes = end;
  }
}
