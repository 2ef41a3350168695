import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BerthError } from "../base/errors.ts";
import { compressedWithoutEncoding, messageTooLarge } from "./error-conversion.ts";
import type { HttpRequest } from "./http-message.ts";
import type { ReceiveAccount } from "./limits.ts";
import { assertFewValues, Pending } from "./request-messages.ts";

/** Flags (one byte) and length (four) before every gRPC message, and before every message of a Connect stream. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;

/**
 * Reads the only message of a request, without its prefix.
 *
 * @param look called with the first byte. If it throws, the reading ends.
 * @throws BerthError `MESSAGE_TOO_LARGE` as soon as the prefix says so, `INVALID_ARGUMENT`, `INTERNAL` or
 *   `UNIMPLEMENTED` for bad framing, `CANCELED` if the request ends early, and what the account throws
 */
export async function readMessage(
  request: HttpRequest,
  maxBytes: number,
  account: ReceiveAccount,
  look?: (firstByte: number | undefined) => void,
): Promise<Uint8Array> {
  const framed = await readBody(request, account, (body) => {
    look?.(body.peek(1)?.[0]);
    const expected = body.peek(PREFIX_BYTES)?.readUInt32BE(1);
    if (expected !== undefined) assertFits(expected, body.size, maxBytes);
  });
  if (framed.length === 0) throw new BerthError("UNIMPLEMENTED", "The request holds no message.");
  if (framed.length < PREFIX_BYTES || framed.length < PREFIX_BYTES + framed.readUInt32BE(1)) {
    throw new BerthError("INVALID_ARGUMENT", "The request message ends before its stated length.");
  }
  if (((framed[0] ?? 0) & COMPRESSED) !== 0) throw compressedWithoutEncoding();
  return framed.subarray(PREFIX_BYTES);
}

/**
 * Reads a request that is one message without a prefix.
 *
 * @throws BerthError `MESSAGE_TOO_LARGE`, `CANCELED` if the request ends early, and what the account throws
 */
export function readPlainMessage(
  request: HttpRequest,
  maxBytes: number,
  account: ReceiveAccount,
): Promise<Uint8Array> {
  return readBody(request, account, ({ size }) => {
    if (size > maxBytes) throw messageTooLarge(maxBytes);
  });
}

/** Reads the body of a request. @param look called with the bytes received so far. If it throws, the reading ends. */
async function readBody(
  request: HttpRequest,
  account: ReceiveAccount,
  look: (body: Pending) => void,
): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let body = new Pending();
  let failed = false;
  const fail = (error: unknown) => {
    failed = true;
    body = new Pending();
    reject(error);
  };
  const onClose = () => fail(new BerthError("CANCELED", "The request ended halfway."));
  request.on("data", (chunk: Buffer) => {
    // Do not keep what arrives after a failure.
    if (failed) return;
    try {
      account.charge(chunk.length);
      body.push(chunk);
      look(body);
    } catch (error) {
      fail(error);
    }
  });
  request.once("end", () => {
    request.off("close", onClose);
    if (failed) return;
    if (request.aborted) return onClose();
    resolve(body.take(body.size));
  });
  request.once("close", onClose);
  try {
    return await promise;
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

/**
 * @throws BerthError `INVALID_ARGUMENT` if the bytes are not such a message, `MESSAGE_TOO_LARGE` for too many values
 */
export function parseMessage<Desc extends DescMessage>(schema: Desc, bytes: Uint8Array) {
  assertFewValues(schema, bytes);
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new BerthError("INVALID_ARGUMENT", `The request is not a valid ${schema.typeName}.`, { cause });
  }
}

/** Shorter pieces are copied into one, because a second write costs more than the copy. */
const OWN_PIECE_BYTES = 4096;

/** Encodes a message, in pieces to send one after another. */
export function encodeMessage<Desc extends DescMessage>(
  schema: Desc,
  message: MessageInitShape<Desc>,
): readonly Uint8Array[] {
  return encodingOf(message) ?? [toBinary(schema, create(schema, message))];
}

/** Adds a prefix to pieces of bytes. */
export function frameBytes(pieces: readonly Uint8Array[], flags = 0): readonly Uint8Array[] {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  prefix[0] = flags;
  prefix.writeUInt32BE(length, 1);
  const last = pieces.at(-1);
  if (last === undefined || last.length < OWN_PIECE_BYTES) {
    return [Buffer.concat([prefix, ...pieces])];
  }
  return [Buffer.concat([prefix, ...pieces.slice(0, -1)]), last];
}

/** The property of a message with its own encoding. */
const ENCODED = Symbol("encoded");

/** The encoding of a message, in pieces that are sent one after another. */
export type Encoded = readonly Uint8Array[];

/**
 * Attaches its encoding to a message, for the one path that avoids copying its bytes. Every other path encodes the
 * message itself, so both must be equal.
 */
export function withEncoding<T extends object>(message: T, encoded: Encoded): T {
  return Object.assign(message, { [ENCODED]: encoded });
}

/** The encoding attached to a message, if any. */
export function encodingOf(message: object): Encoded | undefined {
  return (message as { [ENCODED]?: Encoded })[ENCODED];
}
