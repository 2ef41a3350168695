import type { ConnectError } from "@connectrpc/connect";
import { noteStreamed } from "../base/memory.ts";
import type { CallContext } from "./call-context.ts";
import type { HttpResponse } from "./http-message.ts";

/**
 * How much of a stream may wait to be sent. Node's own bound, 16 KiB, makes the
 * handler wait for the socket after nearly every message.
 */
const MAX_UNSENT_BYTES = 512 * 1024;
/**
 * How long the first message of a stream waits for what follows, over HTTP/1.1: most commands end, and most files begin,
 * within it, and each packet costs both ends as much as a command's own bookkeeping. Over HTTP/2 the end is a packet of
 * its own anyway, and clients take longer for a message, in which the command goes on.
 */
const FIRST_WAIT_MS = 5;

/** Sends the response of one call: messages, then how it ended. */
export abstract class DirectResponse {
  protected readonly response: HttpResponse;
  protected readonly context: CallContext;
  #wake: (() => void) | undefined;
  /** Pieces of messages that wait for others. */
  #held: Uint8Array[] = [];
  /** When they go: undefined before the first message. Over HTTP/2, `later` is left out. */
  #leaving: "later" | "soon" | "now" | undefined;
  #timer: NodeJS.Timeout | undefined;
  #watchesClose = false;
  #unsentBytes = 0;
  #isBroken = false;

  constructor(response: HttpResponse, context: CallContext) {
    this.response = response;
    this.context = context;
  }

  /** Ends the call well, with a last framed message if there is one. */
  abstract complete(frame?: readonly Uint8Array[]): void;

  /** Ends the call with an error. */
  abstract fail(error: ConnectError): void;

  /** Sends the head of the response, unless it has been sent. */
  protected abstract begin(): void;

  /** Whether it can still be sent how the call ended. */
  get open(): boolean {
    return !this.#isBroken && !this.response.writableEnded && !this.#output.destroyed;
  }

  /**
   * Sends a framed message of a stream, with those that follow at once; resolves when the client can take more, or the
   * call is over.
   */
  async send(frame: readonly Uint8Array[]): Promise<void> {
    if (!this.open) return;
    for (const piece of frame) {
      this.#held.push(piece);
      this.#unsentBytes += piece.length;
    }
    if (this.#unsentBytes > MAX_UNSENT_BYTES) this.flush();
    else this.#flushLater();
    while (this.#unsentBytes > MAX_UNSENT_BYTES && this.open) await this.#moved();
  }

  /** What waits to be sent, for who sends it with more. */
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

  /** Sends what waits. */
  protected flush(): void {
    const pieces = this.take();
    if (pieces.length === 0 || !this.open) return;
    this.begin();
    const stream = this.#output;
    // Over HTTP/1.1 a corked response still writes each piece, and what divides them, to the socket by itself.
    const { socket } = this.response;
    if (!("stream" in this.response)) socket?.cork();
    stream.cork();
    for (const piece of pieces) {
      stream.write(piece, (error) => {
        // The connection has gone, of which the response learns later.
        if (error) this.#isBroken = true;
        this.#unsentBytes -= piece.length;
        noteStreamed(piece.length);
        this.#wake?.();
      });
    }
    stream.uncork();
    if (!("stream" in this.response)) socket?.uncork();
  }

  /** Writes what is last; the end of the response sends it at once. */
  protected writeLast(pieces: readonly Uint8Array[]): void {
    // Over HTTP/1.1 Node does this by itself, and loses what is corked here.
    const stream = "stream" in this.response ? this.response.stream : undefined;
    stream?.cork();
    for (const piece of pieces) this.#output.write(piece);
    if (stream !== undefined) process.nextTick(() => stream.uncork());
  }

  /** Resolves when something was sent, or the client is gone. */
  #moved(): Promise<void> {
    if (!this.#watchesClose) this.response.on("close", () => this.#wake?.());
    this.#watchesClose = true;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** A reader that stopped must not hold up the handler of a call that is over. */
  protected wake(): void {
    this.#wake?.();
  }

  /** Where messages are written: over HTTP/2, a response does more for each. */
  get #output() {
    return "stream" in this.response ? this.response.stream : this.response;
  }
}
