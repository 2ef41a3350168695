import type { ConnectError } from "@connectrpc/connect";
import { giveBack } from "../base/lent-bytes.ts";
import { noteStreamed } from "../base/memory.ts";
import type { MemoryBudget, MemoryShare } from "../base/memory-budget.ts";
import { owned } from "../base/owned.ts";
import { callOf } from "./call.ts";
import type { CallContext } from "./call-context.ts";
import { isShort, joinShort } from "./framing.ts";
import type { HttpResponse } from "./http-message.ts";
import { MIN_UNSENT_BYTES } from "./unsent-answers.ts";

/**
 * How much unsent data a stream may have. Node's default of 16 KiB would make the handler wait for the socket after
 * nearly every message.
 */
const MAX_UNSENT_BYTES = 512 * 1024;
/** The memory that an unsent piece takes besides its bytes. */
const PIECE_BYTES = 768;
/**
 * How long the first message of a stream waits for what follows, over HTTP/1.1. Most commands end, and most files
 * start, within this time, and each packet costs both ends as much as a command's own bookkeeping. Over HTTP/2 the end
 * is a separate packet anyway, and clients take longer to handle a message, while the command continues.
 */
const FIRST_WAIT_MS = 5;

/** Sends the response of one call: messages, then the status. */
export abstract class DirectResponse {
  protected readonly response: HttpResponse;
  protected readonly context: CallContext;
  #wake: (() => void) | undefined;
  /** Pieces of messages that are held back to be sent together. */
  #held: Uint8Array[] = [];
  /** When they will be sent. Undefined before the first message. Over HTTP/2, `later` is not used. */
  #leaving: "later" | "soon" | "now" | undefined;
  #timer: NodeJS.Timeout | undefined;
  #watchesClose = false;
  #unsentBytes = 0;
  /** Holds `#countedBytes`. */
  #memory: MemoryShare | undefined;
  #countedBytes = 0;
  #isBroken = false;

  constructor(response: HttpResponse, context: CallContext) {
    this.response = response;
    this.context = context;
  }

  /** Ends the call successfully, with a last framed message if there is one. */
  abstract complete(frame?: readonly Uint8Array[]): void;

  /** Ends the call with an error. */
  abstract fail(error: ConnectError): void;

  /** Sends the head of the response if it has not been sent. */
  protected abstract begin(): void;

  /** Whether the status can still be sent. */
  get open(): boolean {
    return !this.#isBroken && !this.response.writableEnded && !this.#output.destroyed;
  }

  /**
   * Sends a framed message of a stream, together with those that follow at once. Resolves when the client can take
   * more, or when the call is over.
   * @param memory limits what all streams together have unsent
   */
  async send(frame: readonly Uint8Array[], memory: MemoryBudget): Promise<void> {
    if (!this.open) return;
    for (const piece of frame) {
      this.#held.push(piece);
      this.#unsentBytes += piece.length;
    }
    if (this.#unsentBytes > MAX_UNSENT_BYTES) this.flush();
    else this.#flushLater();
    while (!this.#hasRoom(memory) && this.open) await this.#moved();
  }

  /** Whether the handler may continue, with what is unsent. */
  #hasRoom(memory: MemoryBudget): boolean {
    const uncounted = this.#unsentBytes - MIN_UNSENT_BYTES - this.#countedBytes;
    if (uncounted > 0) {
      this.#memory ??= this.#openShare(memory);
      if (!this.#memory.take(uncounted)) return false;
      this.#countedBytes += uncounted;
    }
    return this.#unsentBytes <= MAX_UNSENT_BYTES;
  }

  #openShare(memory: MemoryBudget): MemoryShare {
    const share = memory.open(callOf(this.context).owner);
    this.response.on("close", share.close);
    return share;
  }

  /** Called with bytes that are no longer unsent. */
  #sent(bytes: number): void {
    this.#unsentBytes -= bytes;
    const surplus = this.#countedBytes - Math.max(0, this.#unsentBytes - MIN_UNSENT_BYTES);
    if (surplus > 0) {
      this.#memory?.giveBack(surplus);
      this.#countedBytes -= surplus;
    }
    this.#wake?.();
  }

  /** Removes and returns the pieces held back, for a caller that sends them together with more. */
  protected take(): readonly Uint8Array[] {
    clearTimeout(this.#timer);
    this.#leaving = "now";
    return this.#held.splice(0);
  }

  #flushLater(): void {
    if (this.#leaving === undefined && !("stream" in this.response)) {
      this.#leaving = "later";
      this.#timer = setTimeout(() => this.flush(), FIRST_WAIT_MS);
    } else if (this.#leaving !== "soon") {
      this.#leaving = "soon";
      process.nextTick(() => this.flush());
    }
  }

  /** Sends the pieces held back. */
  protected flush(): void {
    const pieces = joinShort(this.take());
    if (pieces.length === 0 || !this.open) return;
    const isBehind = this.#unsentBytes > pieces.reduce((sum, piece) => sum + piece.length, 0);
    this.begin();
    const stream = this.#output;
    // Over HTTP/1.1 a corked response still writes each piece and its chunk header to the socket separately.
    const { socket } = this.response;
    if (!("stream" in this.response)) socket?.cork();
    stream.cork();
    for (const each of pieces) {
      // Node keeps short pieces together with others. One that waits would keep all of them.
      const piece = isBehind && isShort(each) ? owned(each) : each;
      this.#unsentBytes += PIECE_BYTES;
      stream.write(piece, (error) => {
        // The connection is gone, but the response does not know yet.
        if (error) this.#isBroken = true;
        // What is given back is used again, so it does not become garbage.
        if (error || !giveBack(piece)) noteStreamed(piece.length);
        this.#sent(piece.length + PIECE_BYTES);
      });
    }
    stream.uncork();
    if (!("stream" in this.response)) socket?.uncork();
  }

  /** Writes the last pieces. The end of the response sends them at once. */
  protected writeLast(pieces: readonly Uint8Array[]): void {
    // Over HTTP/1.1 Node corks by itself, and would lose what is corked here.
    const stream = "stream" in this.response ? this.response.stream : undefined;
    stream?.cork();
    for (const piece of pieces) this.#output.write(piece);
    if (stream !== undefined) process.nextTick(() => stream.uncork());
  }

  /** Resolves when something was sent, or when the client is gone. */
  #moved(): Promise<void> {
    if (!this.#watchesClose) this.response.on("close", () => this.#wake?.());
    this.#watchesClose = true;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Resumes a handler whose reader has stopped, because the call is over. */
  protected wake(): void {
    this.#wake?.();
  }

  /** Where messages are written. Over HTTP/2 the stream, because the response does more work per write. */
  get #output() {
    return "stream" in this.response ? this.response.stream : this.response;
  }
}
