import type { ConnectError } from "@connectrpc/connect";
import { headerGrpcMessage, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";

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
