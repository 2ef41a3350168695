import type http2 from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { grpcStatusOk, headerGrpcMessage, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { DirectResponse } from "./direct-response.ts";

const CONTENT_TYPE = { "content-type": "application/grpc+proto" };
const OK = { "grpc-status": grpcStatusOk };

/** The response to a gRPC call: messages, then a status in the trailers. */
export class GrpcResponse extends DirectResponse {
  override complete(frame: readonly Uint8Array[] = []): void {
    if (!this.open) return;
    this.begin();
    const { ownTrailer } = this.context;
    const { response } = this;
    response.addTrailers(ownTrailer ? { ...Object.fromEntries(ownTrailer), ...OK } : OK);
    this.writeLast([...this.take(), ...frame]);
    response.end();
  }

  override fail(error: ConnectError): void {
    if (!this.open) return;
    this.flush();
    this.begin();
    this.response.addTrailers(statusTrailers(error, this.context.ownTrailer));
    this.response.end();
    this.wake();
  }

  protected override begin(): void {
    if (this.response.headersSent) return;
    const { ownHeader } = this.context;
    const headers = ownHeader ? { ...Object.fromEntries(ownHeader), ...CONTENT_TYPE } : CONTENT_TYPE;
    (this.response as http2.Http2ServerResponse).writeHead(200, headers);
  }
}

/** The trailers that end a gRPC or gRPC-Web call with an error, added to those that exist. */
export function statusTrailers(error: ConnectError, trailer: Headers | undefined): Record<string, string> {
  return Object.fromEntries(withPlainMessage(setTrailerStatus(new Headers(trailer), error)));
}

/**
 * Writes the status message of trailers as specified by gRPC. The library escapes more than necessary, and some clients
 * (grpc-js) leave such escapes in the text: every `:` would arrive as `%3A`.
 */
export function withPlainMessage(trailer: Headers): Headers {
  const message = trailer.get(headerGrpcMessage);
  if (message === null) return trailer;
  const plain = new Headers(trailer);
  plain.set(headerGrpcMessage, decodeURIComponent(message).replace(/[^ -~]+|%/gu, encodeURIComponent));
  return plain;
}
