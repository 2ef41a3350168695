import type { Message } from "@bufbuild/protobuf";
import { endStreamFlag } from "@connectrpc/connect/protocol-connect";
import { abortError, BerthError } from "../base/errors.ts";
import type { Call } from "./call.ts";
import { compressedWithoutEncoding, type ErrorConverter, messageTooLarge } from "./error-conversion.ts";
import { parseMessage } from "./framing.ts";
import type { HttpRequest } from "./http-message.ts";
import { type RequestBytesOptions, requestBytes } from "./request-bytes.ts";
import { Pending } from "./request-messages.ts";
import type { Route } from "./routes.ts";

/** Flags (one byte) and length (four) in front of every message. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;

/**
 * The messages of a request that streams them in protobuf, uncompressed, as they are asked for. Their bytes fields
 * are views of what came.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT`, `INTERNAL` for a message that is compressed against its
 *   headers; what ended the call
 */
export async function* requestMessages(
  route: Route,
  call: Call,
  request: HttpRequest,
  { errors, ...options }: RequestBytesOptions & { readonly errors: ErrorConverter },
): AsyncGenerator<Message> {
  try {
    const bytes = requestBytes(route, call, request, options);
    const passedOver = call.protocol === "connect" ? endStreamFlag : 0;
    for await (const message of splitMessages(bytes, route.readMaxBytes, passedOver)) {
      yield parseMessage(route.method.input, message);
    }
  } catch (thrown) {
    if (call.signal.aborted) throw abortError(call.signal);
    // The handler gets the cause; whatever it makes of it, the caller gets what is recorded here.
    errors.fromRequest(call, thrown, route.readMaxBytes);
    throw call.failure?.cause;
  }
}

/** @param passedOver flags of what is no message. */
async function* splitMessages(
  bytes: AsyncIterable<Uint8Array>,
  maxBytes: number,
  passedOver: number,
): AsyncGenerator<Uint8Array> {
  const pending = new Pending();
  for await (const chunk of bytes) {
    pending.push(chunk);
    for (let prefix = pending.peek(PREFIX_BYTES); prefix; prefix = pending.peek(PREFIX_BYTES)) {
      const flags = prefix[0] ?? 0;
      const length = prefix.readUInt32BE(1);
      if (length > maxBytes) throw messageTooLarge(maxBytes);
      if (pending.size < PREFIX_BYTES + length) break;
      const frame = pending.take(PREFIX_BYTES + length);
      if ((flags & COMPRESSED) !== 0) throw compressedWithoutEncoding();
      if ((flags & passedOver) === 0) yield frame.subarray(PREFIX_BYTES);
    }
  }
  if (pending.size > 0) {
    throw new BerthError("INVALID_ARGUMENT", "The request message ends before its stated length.");
  }
}
