import type http2 from "node:http2";
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BerthError } from "../base/errors.ts";
import { compressedWithoutEncoding, messageTooLarge } from "./error-conversion.ts";
import type { ReceiveAccount } from "./limits.ts";
import { assertFewValues } from "./request-messages.ts";

/** Flags (one byte) and length (four) in front of every gRPC message. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;

/**
 * Reads the one message of a request, without its prefix.
 *
 * @throws BerthError `MESSAGE_TOO_LARGE` as soon as the prefix says so, `INVALID_ARGUMENT`, `INTERNAL` or
 *   `UNIMPLEMENTED` for bad framing, `CANCELED` when the request ends halfway, and what the account throws
 */
export async function readMessage(
  request: http2.Http2ServerRequest,
  maxBytes: number,
  account: ReceiveAccount,
): Promise<Uint8Array> {
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
  const chunks: Buffer[] = [];
  let size = 0;
  let expected: number | undefined;
  let failed = false;
  const fail = (error: unknown) => {
    failed = true;
    chunks.length = 0;
    reject(error);
  };
  const onClose = () => fail(new BerthError("CANCELED", "The request ended halfway."));
  request.on("data", (chunk: Buffer) => {
    // What comes after a failure is not kept, so that it costs no memory.
    if (failed) return;
    try {
      account.charge(chunk.length);
      chunks.push(chunk);
      size += chunk.length;
      expected ??= expectedBytes(chunks, size);
      if (expected !== undefined) assertFits(expected, size, maxBytes);
    } catch (error) {
      fail(error);
    }
  });
  request.once("end", () => {
    request.off("close", onClose);
    if (failed) return;
    if (request.aborted) onClose();
    else if (size === 0) fail(new BerthError("UNIMPLEMENTED", "The request holds no message."));
    else if (expected === undefined || size < PREFIX_BYTES + expected) {
      fail(new BerthError("INVALID_ARGUMENT", "The request message ends before its stated length."));
    } else {
      const [first = Buffer.alloc(0)] = chunks;
      resolve(chunks.length === 1 ? first : Buffer.concat(chunks));
    }
  });
  request.once("close", onClose);
  try {
    const framed = await promise;
    if (((framed[0] ?? 0) & COMPRESSED) !== 0) {
      throw compressedWithoutEncoding();
    }
    return framed.subarray(PREFIX_BYTES);
  } finally {
    account.close();
  }
}

function assertFits(expected: number, size: number, maxBytes: number): void {
  if (expected > maxBytes) throw messageTooLarge(maxBytes);
  if (size > PREFIX_BYTES + expected) {
    throw new BerthError("UNIMPLEMENTED", "The request holds more than the one message of this call.");
  }
}

function expectedBytes(chunks: readonly Buffer[], size: number): number | undefined {
  if (size < PREFIX_BYTES) return undefined;
  const [first] = chunks;
  const head = first && first.length >= PREFIX_BYTES ? first : Buffer.concat(chunks, PREFIX_BYTES);
  return head.readUInt32BE(1);
}

/** @throws BerthError `INVALID_ARGUMENT` for bytes that are not such a message, `MESSAGE_TOO_LARGE` for too many values */
export function parseMessage<Desc extends DescMessage>(schema: Desc, bytes: Uint8Array) {
  assertFewValues(schema, bytes);
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new BerthError("INVALID_ARGUMENT", `The request is not a valid ${schema.typeName}.`, { cause });
  }
}

/** What is shorter is copied into one piece: a second write costs more than that. */
const OWN_PIECE_BYTES = 4096;

/** Writes a message with its prefix, in pieces to be sent one after another. */
export function frameMessage<Desc extends DescMessage>(
  schema: Desc,
  message: MessageInitShape<Desc>,
): readonly Uint8Array[] {
  const pieces = encodingOf(message) ?? [toBinary(schema, create(schema, message))];
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  prefix[0] = 0;
  prefix.writeUInt32BE(length, 1);
  const last = pieces.at(-1);
  if (pieces.length === 1 || last === undefined || last.length < OWN_PIECE_BYTES) {
    return [Buffer.concat([prefix, ...pieces])];
  }
  return [Buffer.concat([prefix, ...pieces.slice(0, -1)]), last];
}

/** Where a message carries its own encoding. */
const ENCODED = Symbol("encoded");

/** The encoding of a message, in pieces that are sent one after another as they are. */
export type Encoded = readonly Uint8Array[];

/**
 * Gives a message its encoding along, for the one path that needs no copy of
 * its bytes. Everything else encodes the message itself: both must say the same.
 */
export function withEncoding<T extends object>(message: T, encoded: Encoded): T {
  return Object.assign(message, { [ENCODED]: encoded });
}

/** The encoding a message carries along, if it does. */
export function encodingOf(message: object): Encoded | undefined {
  return (message as { [ENCODED]?: Encoded })[ENCODED];
}
