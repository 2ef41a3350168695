import type { ConnectError } from "@connectrpc/connect";
import type { CallContext } from "./call-context.ts";
import type { HttpResponse } from "./http-message.ts";

/**
 * How much of a stream may wait to be sent. Node's own bound, 16 KiB, makes the
 * handler wait for the socket after nearly every message.
 */
const MAX_UNSENT_BYTES = 512 * 1024;

/** Sends the response of one call: messages, then how it ended. */
export abstract class DirectResponse {
  protected readonly response: HttpResponse;
  protected readonly context: CallContext;
  #wake: (() => void) | undefined;
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

  /** Sends a framed message of a stream; resolves when the client can take more, or the call is over. */
  async send(frame: readonly Uint8Array[]): Promise<void> {
    if (!this.open) return;
    this.begin();
    const stream = this.#output;
    // Over HTTP/1.1 a corked response still writes each piece, and what divides them, to the socket by itself.
    const { socket } = this.response;
    if (!("stream" in this.response)) socket?.cork();
    stream.cork();
    for (const piece of frame) {
      this.#unsentBytes += piece.length;
      stream.write(piece, (error) => {
        // The connection has gone, of which the response learns later.
        if (error) this.#isBroken = true;
        this.#unsentBytes -= piece.length;
        this.#wake?.();
      });
    }
    stream.uncork();
    if (!("stream" in this.response)) socket?.uncork();
    while (this.#unsentBytes > MAX_UNSENT_BYTES && this.open) await this.#moved();
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
