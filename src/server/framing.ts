import {
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  type Message,
  type MessageInitShape,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ByteQueue } from "../base/byte-queue.ts";
import { BerthError } from "../base/errors.ts";
import { TurnShare } from "../base/turn-share.ts";
import { compressedWithoutEncoding, messageTooLarge } from "./error-conversion.ts";
import type { HttpRequest } from "./http-message.ts";
import type { ReceiveAccount } from "./limits.ts";
import { assertFewValues } from "./message-check.ts";

/** Flags (one byte) and length (four) before every gRPC message, and before every message of a Connect stream. */
export const PREFIX_BYTES = 5;
/** The flag of a compressed message. */
export const COMPRESSED = 1;

/** The share of the event loop for all request streams together: a client may send a million small messages at once. */
export const requestTurns = new TurnShare();

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
function readBody(
  request: HttpRequest,
  account: ReceiveAccount,
  look: (body: ByteQueue) => void,
): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let body = new ByteQueue();
  let failed = false;
  const fail = (error: unknown) => {
    failed = true;
    body = new ByteQueue();
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
  return promise;
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

/** From this length on, bytes are a piece of their own. */
const OWN_PIECE_BYTES = 4096;

/** Encodes a message, in pieces to send one after another. */
export function encodeMessage<Desc extends DescMessage>(
  schema: Desc,
  message: MessageInitShape<Desc>,
): readonly Uint8Array[] {
  return encodingOf(message)?.proto() ?? encodeFields(schema, create(schema, message));
}

/** Does not copy long bytes, as the library would. Readers accept the fields of a message in any order. */
function encodeFields(schema: DescMessage, message: Message): Encoded {
  let rest = message as Message & Record<string, unknown>;
  const long: Uint8Array[] = [];
  for (const { localName, number, oneof } of bytesFields(schema)) {
    const group = oneof && (rest[oneof.localName] as { readonly case?: string; readonly value?: unknown });
    const data = (group ? group.case === localName && group.value : rest[localName]) as Uint8Array | false;
    if (!data || data.length < OWN_PIECE_BYTES) continue;
    long.push(new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish(), data);
    rest = oneof ? { ...rest, [oneof.localName]: { case: undefined } } : { ...rest, [localName]: NO_BYTES };
  }
  const short = toBinary(schema, rest);
  return short.length === 0 && long.length > 0 ? long : [short, ...long];
}

const NO_BYTES = new Uint8Array();
const bytesFieldsOf = new WeakMap<DescMessage, readonly DescField[]>();

/** The fields of a message itself that are bytes. */
function bytesFields(schema: DescMessage): readonly DescField[] {
  const fields =
    bytesFieldsOf.get(schema) ??
    schema.fields.filter(({ fieldKind, scalar }) => fieldKind === "scalar" && scalar === ScalarType.BYTES);
  bytesFieldsOf.set(schema, fields);
  return fields;
}

/** Adds a prefix to pieces of bytes. */
export function frameBytes(pieces: readonly Uint8Array[], flags = 0): readonly Uint8Array[] {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  prefix[0] = flags;
  prefix.writeUInt32BE(length, 1);
  return joinShort([prefix, ...pieces]);
}

/** Whether a write of its own costs more than a copy of a piece. */
export function isShort(piece: Uint8Array): boolean {
  return piece.length < OWN_PIECE_BYTES;
}

/** Joins short pieces that follow one another. */
export function joinShort(pieces: readonly Uint8Array[]): readonly Uint8Array[] {
  if (pieces.length < 2) return pieces;
  const joined: Uint8Array[] = [];
  let short: Uint8Array[] = [];
  const join = (): void => {
    joined.push(...(short.length < 2 ? short : [Buffer.concat(short)]));
    short = [];
  };
  for (const piece of pieces) {
    if (isShort(piece)) short.push(piece);
    else {
      join();
      joined.push(piece);
    }
  }
  join();
  return joined;
}

/** The property of a message with its own encoding. */
const ENCODED = Symbol("encoded");

/** The encoding of a message, in pieces that are sent one after another. */
export type Encoded = readonly Uint8Array[];

/** How a message encodes itself, for the one path that avoids copying its bytes. */
interface OwnEncoding {
  proto(): Encoded;
  /** Undefined: as for other messages. */
  readonly json?: () => Encoded;
}

/** Attaches its encoding to a message. Every other path encodes the message itself, so both must be equal. */
export function withEncoding<T extends object>(message: T, encoding: OwnEncoding): T {
  return Object.assign(message, { [ENCODED]: encoding });
}

/** The encoding attached to a message, if any. */
export function encodingOf(message: object): OwnEncoding | undefined {
  return (message as { [ENCODED]?: OwnEncoding })[ENCODED];
}
