import { setImmediate as nextTurn } from "node:timers/promises";
import { withRoom } from "../../../base/with-room.ts";

/** How much of a larger message is kept: enough to see which request it answers. */
const HEAD_BYTES = 256;
/** How long one turn of the event loop may handle messages. */
const SLICE_MS = 10;
const NOTHING = Buffer.alloc(0);

/** Receives messages and controls their flow. */
interface MessageTarget {
  /** How large a message may be at the moment. */
  maxBytes(): number;
  /** Receives the memory that an unfinished message takes, whenever that changes. */
  held(bytes: number): void;
  /** @param whole false if `bytes` is only the start of a message that is too large. */
  message(bytes: Buffer, whole: boolean): void;
  /** Stops the source until {@link resume}. */
  pause(): void;
  resume(): void;
}

/**
 * Splits the browser's output into messages, which end with NUL. Handles many small messages in slices of a few
 * milliseconds, so that a page that floods the pipe slows only its own session.
 */
export class MessageStream {
  readonly #target: MessageTarget;
  readonly #waiting: Buffer[] = [];
  /** The start of a message that is not complete yet, and how many bytes of it are kept. */
  #partial: Buffer<ArrayBuffer> = NOTHING;
  #bytes = 0;
  /** Whether that message is too large, so that only its head is kept. */
  #isCut = false;
  #reported = 0;
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

  /** Drops everything received and everything to come. */
  close(): void {
    this.#isClosed = true;
    this.#waiting.length = 0;
    this.#forget();
  }

  /** Drops what has arrived of a message. It counts as too large. */
  cut(): void {
    if (this.#bytes > HEAD_BYTES) this.#cut(NOTHING);
  }

  /** Applies a limit that has become smaller to what has arrived. */
  shrink(): void {
    this.#add(NOTHING);
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
    // Most messages lie within one chunk and need no copy.
    if (this.#bytes > 0) this.#add(last);
    const whole = !this.#isCut;
    const bytes = this.#bytes === 0 ? last : this.#partial.subarray(0, this.#bytes);
    this.#forget();
    if (bytes.length > 0) this.#target.message(bytes, whole);
  }

  #add(part: Buffer): void {
    if (this.#isCut || this.#isClosed) return;
    const end = this.#bytes + part.length;
    const max = this.#target.maxBytes();
    if (end > max) {
      this.#cut(part);
      return;
    }
    this.#partial = withRoom(this.#partial, this.#bytes, end, max);
    part.copy(this.#partial, this.#bytes);
    this.#bytes = end;
    this.#report();
  }

  #cut(part: Buffer): void {
    const kept = this.#partial.subarray(0, Math.min(this.#bytes, HEAD_BYTES));
    this.#partial = Buffer.concat([kept, part.subarray(0, HEAD_BYTES - kept.length)]);
    this.#bytes = this.#partial.length;
    this.#isCut = true;
    this.#report();
  }

  #report(): void {
    const bytes = this.#partial.length;
    if (bytes === this.#reported) return;
    this.#reported = bytes;
    this.#target.held(bytes);
  }

  #forget(): void {
    this.#partial = NOTHING;
    this.#bytes = 0;
    this.#isCut = false;
    this.#report();
  }
}
