import type http2 from "node:http2";
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BerthError } from "../core/errors.ts";
import { messageTooLarge } from "./error-conversion.ts";

/** Flags (one byte) and length (four) in front of every gRPC message. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;

/**
 * Reads the one message of a request, without its prefix.
 *
 * @throws BerthError `MESSAGE_TOO_LARGE` as soon as the prefix says so, `INVALID_ARGUMENT` or
 *   `UNIMPLEMENTED` for bad framing, `CANCELED` when the request ends halfway
 */
export function readMessage(request: http2.Http2ServerRequest, maxBytes: number): Promise<Uint8Array> {
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
  const chunks: Buffer[] = [];
  let size = 0;
  let expected: number | undefined;
  const onClose = () => reject(new BerthError("CANCELED", "The request ended halfway."));
  request.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    expected ??= expectedBytes(chunks, size);
    if (expected === undefined) return;
    const tooLarge = expected > maxBytes;
    if (tooLarge) reject(messageTooLarge(maxBytes));
    // Nothing is kept of what lies beyond the message, so that it costs no memory.
    if (tooLarge || size > PREFIX_BYTES + expected) chunks.length = 0;
  });
  request.once("end", () => {
    request.off("close", onClose);
    if (request.aborted) onClose();
    else if (size === 0) reject(new BerthError("UNIMPLEMENTED", "The request holds no message."));
    else if (expected === undefined || size < PREFIX_BYTES + expected) {
      reject(new BerthError("INVALID_ARGUMENT", "The request message ends before its stated length."));
    } else if (size > PREFIX_BYTES + expected) {
      reject(new BerthError("UNIMPLEMENTED", "The request holds more than the one message of this call."));
    } else {
      const [first = Buffer.alloc(0)] = chunks;
      const whole = chunks.length === 1 ? first : Buffer.concat(chunks);
      if (((whole[0] ?? 0) & COMPRESSED) === 0) resolve(whole.subarray(PREFIX_BYTES));
      else
        reject(
          new BerthError("INVALID_ARGUMENT", "The message is compressed, but grpc-encoding is not set."),
        );
    }
  });
  request.once("close", onClose);
  return promise;
}

function expectedBytes(chunks: readonly Buffer[], size: number): number | undefined {
  if (size < PREFIX_BYTES) return undefined;
  const [first] = chunks;
  const head = first && first.length >= PREFIX_BYTES ? first : Buffer.concat(chunks, PREFIX_BYTES);
  return head.readUInt32BE(1);
}

/** @throws BerthError `INVALID_ARGUMENT` for bytes that are not such a message */
export function parseMessage<Desc extends DescMessage>(schema: Desc, bytes: Uint8Array) {
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new BerthError("INVALID_ARGUMENT", `The request is not a valid ${schema.typeName}.`, { cause });
  }
}

/** Writes a message with its prefix. */
export function frameMessage<Desc extends DescMessage>(
  schema: Desc,
  message: MessageInitShape<Desc>,
): Buffer {
  const bytes = toBinary(schema, create(schema, message));
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + bytes.length);
  frame[0] = 0;
  frame.writeUInt32BE(bytes.length, 1);
  frame.set(bytes, PREFIX_BYTES);
  return frame;
}
