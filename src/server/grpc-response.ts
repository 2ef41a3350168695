import type http2 from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { grpcStatusOk } from "@connectrpc/connect/protocol-grpc";
import type { GrpcContext } from "./grpc-context.ts";
import { statusTrailers } from "./grpc-status.ts";

const CONTENT_TYPE = { "content-type": "application/grpc+proto" };
const OK = { "grpc-status": grpcStatusOk };

/**
 * How much of a stream may wait to be sent. Node's own bound, 16 KiB, makes the
 * handler wait for the socket after nearly every message.
 */
const MAX_UNSENT_BYTES = 512 * 1024;

/** Sends the response of one gRPC call: messages, then a status in the trailers. */
export class GrpcResponse {
  readonly #response: http2.Http2ServerResponse;
  readonly #context: GrpcContext;
  #wake: (() => void) | undefined;
  #watchesClose = false;
  #unsentBytes = 0;

  constructor(response: http2.Http2ServerResponse, context: GrpcContext) {
    this.#response = response;
    this.#context = context;
  }

  /** Whether a status can still be sent. */
  get open(): boolean {
    return !this.#response.writableEnded && !this.#response.stream.destroyed;
  }

  /** Sends a framed message of a stream; resolves when the client can take more, or the call is over. */
  async send(frame: readonly Uint8Array[]): Promise<void> {
    if (!this.open) return;
    this.#begin();
    const { stream } = this.#response;
    stream.cork();
    for (const piece of frame) {
      this.#unsentBytes += piece.length;
      stream.write(piece, () => {
        this.#unsentBytes -= piece.length;
        this.#wake?.();
      });
    }
    stream.uncork();
    while (this.#unsentBytes > MAX_UNSENT_BYTES && this.open) await this.#moved();
  }

  /** Resolves when something was sent, or the client is gone. */
  #moved(): Promise<void> {
    if (!this.#watchesClose) this.#response.on("close", () => this.#wake?.());
    this.#watchesClose = true;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Ends the call well, with a last framed message if there is one. */
  complete(frame: readonly Uint8Array[] = []): void {
    if (!this.open) return;
    this.#begin();
    const { ownTrailer } = this.#context;
    this.#response.addTrailers(ownTrailer ? { ...Object.fromEntries(ownTrailer), ...OK } : OK);
    for (const piece of frame) this.#response.write(piece);
    this.#response.end();
  }

  /** Ends the call with an error. */
  fail(error: ConnectError): void {
    if (!this.open) return;
    this.#begin();
    this.#response.addTrailers(statusTrailers(error, this.#context.ownTrailer));
    this.#response.end();
    // A reader that stopped must not hold up the handler of a call that is over.
    this.#wake?.();
  }

  #begin(): void {
    if (this.#response.headersSent) return;
    const { ownHeader } = this.#context;
    this.#response.writeHead(
      200,
      ownHeader ? { ...Object.fromEntries(ownHeader), ...CONTENT_TYPE } : CONTENT_TYPE,
    );
  }
}
