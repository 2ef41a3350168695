import type http2 from "node:http2";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import {
  type ConnectError,
  type ContextValues,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { grpcStatusOk, headerGrpcMessage, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { type Call, setCall } from "./call.ts";
import { type HttpRequest, headersOf, urlOf } from "./http-message.ts";

/**
 * What a handler knows of its call when {@link serveGrpc} runs it. `Headers`
 * are slow to make and few handlers look at them, so they are made when asked for.
 */
export class GrpcContext implements HandlerContext {
  readonly method: DescMethod;
  readonly protocolName = "grpc";
  readonly requestMethod = "POST";
  readonly values: ContextValues = createContextValues();
  readonly signal: AbortSignal;
  readonly timeoutMs: () => number | undefined;
  readonly #request: HttpRequest;
  #requestHeader: Headers | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;

  constructor(method: DescMethod, call: Call, request: HttpRequest) {
    this.method = method;
    this.signal = call.signal;
    this.timeoutMs = call.timeoutMs;
    this.#request = request;
    setCall(this.values, call);
  }

  get service(): DescService {
    return this.method.parent;
  }

  get url(): string {
    return urlOf(this.#request);
  }

  get requestHeader(): Headers {
    this.#requestHeader ??= headersOf(this.#request);
    return this.#requestHeader;
  }

  get responseHeader(): Headers {
    this.#responseHeader ??= new Headers();
    return this.#responseHeader;
  }

  get responseTrailer(): Headers {
    this.#responseTrailer ??= new Headers();
    return this.#responseTrailer;
  }

  /** The response headers, if the handler set any. */
  get ownHeader(): Headers | undefined {
    return this.#responseHeader;
  }

  /** The response trailers, if the handler set any. */
  get ownTrailer(): Headers | undefined {
    return this.#responseTrailer;
  }
}

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

/** The trailers that end a gRPC or gRPC-Web call with an error, over those that are there already. */
export function statusTrailers(error: ConnectError, trailer: Headers | undefined): Record<string, string> {
  return Object.fromEntries(withPlainMessage(setTrailerStatus(new Headers(trailer), error)));
}

/**
 * Writes the status message of trailers as gRPC specifies it. The library
 * escapes also what needs no escape, and some clients (grpc-js) leave such
 * escapes in the text: every `:` would arrive as `%3A`.
 */
export function withPlainMessage(trailer: Headers): Headers {
  const message = trailer.get(headerGrpcMessage);
  if (message === null) return trailer;
  const plain = new Headers(trailer);
  plain.set(headerGrpcMessage, decodeURIComponent(message).replace(/[^ -~]+|%/gu, encodeURIComponent));
  return plain;
}
