import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  ScalarType,
} from "@bufbuild/protobuf";
import { compressionGzip } from "@connectrpc/connect-node";
import { BerthError, invalidArgument } from "../base/errors.ts";
import { TurnShare } from "../base/event-loop.ts";
import { hasFewValues } from "../base/json.ts";
import { nearest } from "../base/nearest.ts";
import { compressedWithoutEncoding, messageTooLarge, tooManyValues } from "./error-conversion.ts";

/** Flags (one byte) and length (four) before every message, except in a unary Connect call. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;
/** Larger messages are checked and parsed in two turns of the event loop. */
const LARGE_BYTES = 256 * 1024;

/** The share of the event loop for all request streams together: a client may send a million small messages at once. */
export const requestTurns = new TurnShare();

/** The format of a request's messages. */
export interface RequestFormat {
  readonly method: DescMethod;
  readonly json: boolean;
  readonly ignoreUnknown: boolean;
  /** Whether messages have a prefix. */
  readonly framed: boolean;
  /** The compression of messages that are marked as compressed, or of the only message. Null: none. */
  readonly encoding: string | null;
  /** The response header that lists the encodings that the server accepts. */
  readonly acceptHeader: string;
  readonly maxBytes: number;
}

/** Determines the format of a request's messages from its headers. */
export function requestFormat(method: DescMethod, header: Headers, maxBytes: number): RequestFormat {
  const type = header.get("content-type") ?? "";
  const streaming = /^application\/connect\+/i.test(type);
  const framed = streaming || /^application\/grpc/i.test(type);
  const [encodingHeader, acceptHeader] = streaming
    ? ["connect-content-encoding", "connect-accept-encoding"]
    : framed
      ? ["grpc-encoding", "grpc-accept-encoding"]
      : ["content-encoding", "accept-encoding"];
  const encoding = header.get(encodingHeader);
  return {
    method,
    json: /[/+]json\b/i.test(type),
    ignoreUnknown: header.get(IGNORE_UNKNOWN_HEADER)?.toLowerCase() === "true",
    framed,
    encoding: encoding === "identity" ? null : encoding,
    acceptHeader,
    maxBytes,
  };
}

type Decompress = (bytes: Uint8Array) => Promise<Uint8Array>;

/**
 * Checks each message of a request before the library parses it. Yields the messages that may be parsed, uncompressed.
 * The library reports everything else that is wrong with a request.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields, `INTERNAL` for a compressed message in
 *   a request without an encoding; what `decompress` throws
 */
export async function* checkedMessages(
  body: AsyncIterable<Uint8Array>,
  format: RequestFormat,
  decompress: Decompress,
): AsyncGenerator<Uint8Array> {
  if (format.framed) return yield* checkedFrames(body, format, decompress);
  const message = await readAll(body, format.maxBytes);
  yield format.encoding === null
    ? await checked(message, format)
    : await checked(await decompress(message), format);
}

/** The encoding that the server accepts. */
export const ACCEPTED_ENCODING = compressionGzip.name;

/** Whether {@link checkedMessages} can read this encoding. The library refuses any other before it reads. */
export function isReadable({ encoding }: RequestFormat): boolean {
  return encoding === null || encoding === ACCEPTED_ENCODING;
}

async function* checkedFrames(
  body: AsyncIterable<Uint8Array>,
  format: RequestFormat,
  decompress: Decompress,
): AsyncGenerator<Uint8Array> {
  const pending = new Pending();
  for await (const chunk of body) {
    pending.push(chunk);
    for (;;) {
      const turn = requestTurns.enter();
      if (turn) await turn;
      if (format.json && isJsonText(pending.peek(1)?.[0])) throw unenveloped(format.method);
      const prefix = pending.peek(PREFIX_BYTES);
      if (prefix === undefined) break;
      const length = prefix.readUInt32BE(1);
      // The library refuses it because of its prefix.
      if (length > format.maxBytes) return yield pending.take(PREFIX_BYTES);
      if (pending.size < PREFIX_BYTES + length) break;
      const frame = pending.take(PREFIX_BYTES + length);
      const flags = frame[0] ?? 0;
      const message = frame.subarray(PREFIX_BYTES);
      // Any other flag marks something that is not a message.
      if ((flags & ~COMPRESSED) !== 0) yield frame;
      else if (flags === 0) {
        await check(message, format);
        yield frame;
      } else {
        if (format.encoding === null) throw compressedWithoutEncoding();
        yield frameOf(await checked(await decompress(message), format));
      }
    }
  }
  // An incomplete message.
  if (pending.size > 0) yield pending.take(pending.size);
}

/** Whether a message starts like JSON text, which no message in an envelope does. */
function isJsonText(byte: number | undefined): boolean {
  return byte !== undefined && '{[" \t\r\n'.includes(String.fromCharCode(byte));
}

const CONTENT_TYPE = "content-type";

/** @throws BerthError `INVALID_ARGUMENT` for JSON text instead of an envelope */
export function assertEnveloped(method: DescMethod, firstByte: number | undefined): void {
  if (isJsonText(firstByte)) throw unenveloped(method);
}

function unenveloped({ methodKind }: DescMethod): BerthError {
  const advice =
    methodKind === "server_streaming"
      ? 'Send it with "content-type: application/json": the answer then is one JSON message a line.'
      : "Put a zero byte and the length in front of each message, as four bytes, big-endian; a client of gRPC or Connect does.";
  return invalidArgument(
    CONTENT_TYPE,
    `says that messages have envelopes, but the body is plain JSON. ${advice}`,
  );
}

/** Whether a call failed because it sent plain JSON instead of envelopes. */
export function isUnenveloped(cause: unknown): boolean {
  return cause instanceof BerthError && cause.metadata.field === CONTENT_TYPE;
}

async function checked(message: Uint8Array, format: RequestFormat): Promise<Uint8Array> {
  await check(message, format);
  return message;
}

/**
 * Checks a message before it is parsed.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields
 */
export async function check(
  message: Uint8Array,
  { method, json, ignoreUnknown }: Pick<RequestFormat, "method" | "json" | "ignoreUnknown">,
): Promise<void> {
  const desc = method.input;
  if (json) {
    assertFewJsonValues(message);
    // The parser would replace other bytes by U+FFFD, and so run a different command.
    if (!isUtf8(message)) throw new BerthError("INVALID_ARGUMENT", NOT_UTF8);
    const unknown = ignoreUnknown ? undefined : unknownField(desc, parse(message));
    if (unknown !== undefined) throw unknown;
  } else assertFewValues(desc, message);
  if (message.length > LARGE_BYTES) await setImmediate();
}

const NOT_UTF8 =
  "The JSON is not UTF-8. Send text as UTF-8, and what is not text in a field of bytes, as base64.";

/** Undefined if it is not JSON: the library reports that. */
function parse(message: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(message.buffer, message.byteOffset, message.length).toString());
  } catch {
    return undefined;
  }
}

function frameOf(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

async function readAll(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const pending = new Pending();
  for await (const chunk of body) {
    pending.push(chunk);
    if (pending.size > maxBytes) throw messageTooLarge(maxBytes);
  }
  return pending.take(pending.size);
}

/** Small pieces are combined up to this length, because each has an overhead of about two hundred bytes. */
const JOINED_BYTES = 4096;

/** Received bytes that have not been taken. Copies only small pieces. */
export class Pending {
  #chunks: Uint8Array[] = [];
  /** The buffer into which small pieces are combined. */
  #joined: Buffer<ArrayBuffer> | undefined;
  size = 0;

  push(chunk: Uint8Array): void {
    if (!this.#join(chunk)) this.#chunks.push(chunk);
    this.size += chunk.length;
  }

  /** Appends a piece to the last one. Returns false if they are too long for that. */
  #join(chunk: Uint8Array): boolean {
    let last = this.#chunks.at(-1);
    if (last === undefined) return false;
    if (last.buffer !== this.#joined?.buffer) {
      if (last.length + chunk.length > JOINED_BYTES) return false;
      this.#joined = Buffer.allocUnsafeSlow(JOINED_BYTES);
      this.#joined.set(last);
      last = this.#joined.subarray(0, last.length);
    }
    const end = last.byteOffset + last.length;
    if (end + chunk.length > JOINED_BYTES) return false;
    // Bytes before this position may already have been taken.
    this.#joined.set(chunk, end);
    this.#chunks[this.#chunks.length - 1] = this.#joined.subarray(last.byteOffset, end + chunk.length);
    return true;
  }

  /** The first `length` bytes. Undefined if fewer have arrived. */
  peek(length: number): Buffer | undefined {
    if (this.size < length) return undefined;
    const [first] = this.#chunks;
    if (first !== undefined && first.length >= length) return asBuffer(first).subarray(0, length);
    return Buffer.concat(this.#chunks, length);
  }

  /** Removes the first `length` bytes, which must have arrived. Copies them only if they arrived in several pieces. */
  take(length: number): Buffer {
    let count = 0;
    let bytes = 0;
    for (; bytes < length; count++) bytes += this.#chunks[count]?.length ?? 0;
    const taken = this.#chunks.splice(0, count);
    const last = asBuffer(taken.at(-1));
    if (bytes > length) this.#chunks.unshift(last.subarray(last.length - (bytes - length)));
    this.size -= length;
    return taken.length === 1 ? last.subarray(0, length) : Buffer.concat(taken, length);
  }
}

function asBuffer(bytes: Uint8Array = new Uint8Array()): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}

/**
 * The header with which a client that may be newer than the server makes it ignore unknown JSON fields. Value: `true`.
 */
export const IGNORE_UNKNOWN_HEADER = "berth-ignore-unknown-fields";

/** A longer name is not a typo of a known one. */
const MAX_NAME = 64;

/**
 * Finds a field of a JSON message that its type does not have, or an enum value that does not exist. Otherwise the
 * parser would take `{"content": …}` for a message without content, and `{"onDisconnect": "DETACH"}` for the default.
 */
export function unknownField(desc: DescMessage, json: unknown): BerthError | undefined {
  return inMessage(desc, json, "");
}

/** Other values of a wrong type are left to the parser. */
function inMessage(desc: DescMessage, json: unknown, path: string): BerthError | undefined {
  if (desc.typeName === DURATION && typeof json !== "object" && !isDurationText(json))
    return noDuration(json, path);
  // Types such as Struct and Timestamp have their own JSON form.
  if (desc.typeName.startsWith("google.protobuf.")) return undefined;
  if (!isObject(json)) return path === "" || json === null ? undefined : noObject(desc, json, path);
  const fields = fieldsOf(desc);
  for (const [name, value] of Object.entries(json)) {
    const at = path === "" ? name : `${path}.${name}`;
    const field = fields.get(name);
    const found = field === undefined ? noSuchField(desc, name, at) : inField(field, value, at);
    if (found !== undefined) return found;
  }
  return undefined;
}

function inField(field: DescField, value: unknown, path: string): BerthError | undefined {
  if (field.message === undefined && field.enum === undefined) return undefined;
  const list = field.fieldKind === "list";
  if (!list && field.fieldKind !== "map") return inValue(field, value, path);
  if (list ? !Array.isArray(value) : !isObject(value)) return undefined;
  for (const [key, part] of Object.entries(value as object)) {
    const found = inValue(field, part, `${path}[${list ? key : JSON.stringify(key)}]`);
    if (found !== undefined) return found;
  }
  return undefined;
}

function inValue(field: DescField, value: unknown, path: string): BerthError | undefined {
  if (field.message !== undefined) return inMessage(field.message, value, path);
  if (field.enum === undefined || typeof value !== "string") return undefined;
  return field.enum.values.some(({ name }) => name === value)
    ? undefined
    : noSuchName(field.enum, value, path);
}

function noSuchName(
  { typeName, values, sharedPrefix = "" }: DescEnum,
  name: string,
  path: string,
): BerthError {
  const names = values.filter(({ number }) => number !== 0).map((value) => value.name);
  const short = (text: string): string => text.slice(text.startsWith(sharedPrefix) ? sharedPrefix.length : 0);
  const plain = (text: string): string => short(text.replaceAll("-", "_").toLowerCase()).replaceAll("_", "-");
  const meant = name.length > MAX_NAME ? undefined : nearest(plain(name), names.map(plain));
  const known = names.find((candidate) => plain(candidate) === meant);
  const advice = known === undefined ? `It has ${names.join(", ")}.` : `Did you mean "${known}"?`;
  return invalidArgument(
    path.slice(0, MAX_PATH),
    `${JSON.stringify(name.slice(0, MAX_NAME))} is not a name of ${typeName}. ${advice}`,
  );
}

const DURATION = "google.protobuf.Duration";

function isDurationText(json: unknown): boolean {
  return typeof json === "string" && /^-?\d+(\.\d{1,9})?s$/.test(json);
}

function noDuration(json: unknown, path: string): BerthError {
  const text = String(JSON.stringify(json)).slice(0, MAX_NAME);
  return invalidArgument(
    path.slice(0, MAX_PATH),
    `${text} is not a duration. Give seconds as a text that ends in "s", for instance "300s" or "0.5s".`,
  );
}

/** The parser does not say which field it is, and `{"argv": ["ls"]}` is an easy slip. */
function noObject({ typeName, fields }: DescMessage, json: unknown, path: string): BerthError {
  const kind = Array.isArray(json) ? "a list" : `a ${typeof json}`;
  const example = `{${fields.map(({ jsonName }) => `"${jsonName}": …`).join(", ")}}`;
  return invalidArgument(path.slice(0, MAX_PATH), `takes an object of ${typeName}, not ${kind}: ${example}.`);
}

const fieldsByName = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

/** By both names that JSON may use. */
function fieldsOf(desc: DescMessage): ReadonlyMap<string, DescField> {
  let fields = fieldsByName.get(desc);
  if (fields === undefined) {
    fields = new Map(
      desc.fields.flatMap((field) => [field.name, field.jsonName].map((name) => [name, field])),
    );
    fieldsByName.set(desc, fields);
  }
  return fields;
}

function noSuchField({ typeName, fields }: DescMessage, name: string, path: string): BerthError {
  const names = fields.map(({ name: protoName, jsonName }) => (name.includes("_") ? protoName : jsonName));
  const plain = (text: string): string => text.replaceAll("_", "").toLowerCase();
  const meant = name.length > MAX_NAME ? undefined : nearest(plain(name), names.map(plain));
  const known = names.find((candidate) => plain(candidate) === meant);
  const advice =
    known !== undefined
      ? `Did you mean "${known}"?`
      : names.length > 0
        ? `It has ${names.join(", ")}.`
        : "It has none.";
  return invalidArgument(
    path.slice(0, MAX_PATH),
    `${typeName} has no such field. ${advice} To have such fields ignored, set the header "${IGNORE_UNKNOWN_HEADER}: true".`,
  );
}

/** A path is quoted twice, with advice after it. */
const MAX_PATH = 256;

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * How many values a message may have, so that it is checked and parsed in less than a tenth of a second. Two bytes are
 * an empty message, so a parser turns 4 MiB into two million objects, and blocks the event loop for seconds.
 */
const MAX_VALUES = 64_000;
/** A message within a message, or an entry of a map, costs as much as this many plain values. */
const VALUES_PER_MESSAGE = 8;
/** The same limit for JSON, in which a value has one separator, and an entry of a map two. */
const MAX_SEPARATORS = MAX_VALUES / VALUES_PER_MESSAGE;
/** Messages up to this size cannot contain too many values. */
const SMALL_BYTES = 16 * 1024;
/** The parser's own limit. */
const MAX_DEPTH = 100;

const WIRE_TYPE = { varint: 0, bit64: 1, bytes: 2, startGroup: 3, endGroup: 4, bit32: 5 } as const;

/** @throws BerthError `MESSAGE_TOO_LARGE` for an encoded message with more values than the service parses */
export function assertFewValues(desc: DescMessage, bytes: Uint8Array): void {
  if (bytes.length > SMALL_BYTES) new ValueCounter(bytes).count(shapeOf(desc), bytes.length, 0);
}

/** @throws BerthError `MESSAGE_TOO_LARGE` for JSON with more values than the service parses */
function assertFewJsonValues(bytes: Uint8Array): void {
  if (!hasFewValues(bytes, MAX_SEPARATORS)) throw tooManyValues(MAX_SEPARATORS);
}

/** The fields of a message that may contain more than one value: messages, with their shape, and packed numbers. */
type Shape = ReadonlyMap<number, Shape | "packed">;

const shapes = new WeakMap<DescMessage, Shape>();

function shapeOf(desc: DescMessage): Shape {
  const known = shapes.get(desc);
  if (known !== undefined) return known;
  const shape = new Map<number, Shape | "packed">();
  // Set before its fields are visited, because messages may contain themselves.
  shapes.set(desc, shape);
  for (const field of desc.fields) {
    const content = contentOf(field);
    if (content !== undefined) shape.set(field.number, content);
  }
  return shape;
}

function contentOf(field: DescField): Shape | "packed" | undefined {
  if (field.fieldKind === "map") {
    return new Map(field.message === undefined ? [] : [[2, shapeOf(field.message)]]);
  }
  if (field.message !== undefined) return shapeOf(field.message);
  const wide = field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES;
  return field.fieldKind === "list" && !wide ? "packed" : undefined;
}

/** Counts the values of a message without decoding it. Stops at malformed data, which the parser refuses. */
class ValueCounter {
  readonly #bytes: Uint8Array;
  #at = 0;
  #left = MAX_VALUES;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  count(shape: Shape, to: number, depth: number): void {
    while (this.#at < to) {
      this.#take(1);
      const tag = this.#varint();
      switch (tag & 7) {
        case WIRE_TYPE.varint:
          this.#varint();
          break;
        case WIRE_TYPE.bit64:
          this.#at += 8;
          break;
        case WIRE_TYPE.bit32:
          this.#at += 4;
          break;
        case WIRE_TYPE.bytes: {
          const length = this.#varint();
          const end = Math.min(this.#at + length, to);
          const content = shape.get(tag >>> 3);
          if (content === "packed") this.#take(length);
          else if (content !== undefined) {
            this.#take(VALUES_PER_MESSAGE);
            if (depth < MAX_DEPTH) this.count(content, end, depth + 1);
          }
          this.#at = end;
          break;
        }
        case WIRE_TYPE.startGroup:
        case WIRE_TYPE.endGroup:
          // The content of a group is counted as part of its surroundings.
          break;
        default:
          return;
      }
    }
  }

  #take(values: number): void {
    this.#left -= values;
    if (this.#left < 0) throw tooManyValues(MAX_VALUES);
  }

  /** The low 32 bits: tags and lengths have no more. */
  #varint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at++] ?? 0;
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value >>> 0;
  }
}
