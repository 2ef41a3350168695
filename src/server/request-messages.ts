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

/** Flags (one byte) and length (four) in front of every message, save that of a unary call in Connect. */
const PREFIX_BYTES = 5;
const COMPRESSED = 1;
/** Messages of more bytes are checked and parsed in two turns of the event loop. */
const LARGE_BYTES = 256 * 1024;

/** What all streams of requests have of the event loop: a client may send a million small messages in one breath. */
export const requestTurns = new TurnShare();

/** How the messages of a request come. */
export interface RequestFormat {
  readonly method: DescMethod;
  readonly json: boolean;
  readonly ignoreUnknown: boolean;
  /** Whether messages have a prefix. */
  readonly framed: boolean;
  /** How a message is compressed that says so, or the only one; null: not at all. */
  readonly encoding: string | null;
  /** The response header that names the encodings that the server takes. */
  readonly acceptHeader: string;
  readonly maxBytes: number;
}

/** Reads from the headers of a request how its messages come. */
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

/** Decompresses a message. */
type Decompress = (bytes: Uint8Array) => Promise<Uint8Array>;

/**
 * Looks at each message of a request before the library parses it, and lets
 * through what it may parse, uncompressed. What is wrong with a request in
 * another way is the library's to refuse.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields, `INTERNAL` for one that is
 *   compressed against its headers; what `decompress` throws
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

/** The encoding that requests may have. */
export const ACCEPTED_ENCODING = compressionGzip.name;

/** Whether {@link checkedMessages} decompresses what has this encoding. Any other the library refuses before it reads. */
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
      // The library refuses it by its prefix.
      if (length > format.maxBytes) return yield pending.take(PREFIX_BYTES);
      if (pending.size < PREFIX_BYTES + length) break;
      const frame = pending.take(PREFIX_BYTES + length);
      const flags = frame[0] ?? 0;
      const message = frame.subarray(PREFIX_BYTES);
      // Any other flag marks what is not a message.
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
  // A message that breaks off.
  if (pending.size > 0) yield pending.take(pending.size);
}

/** Whether a message begins like text of JSON; no message in an envelope does. */
function isJsonText(byte: number | undefined): boolean {
  return byte !== undefined && '{[" \t\r\n'.includes(String.fromCharCode(byte));
}

const CONTENT_TYPE = "content-type";

/** @throws BerthError `INVALID_ARGUMENT` for text of JSON where messages have envelopes */
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

/** Whether a call failed because its messages were plain JSON where messages have envelopes. */
export function isUnenveloped(cause: unknown): boolean {
  return cause instanceof BerthError && cause.metadata.field === CONTENT_TYPE;
}

async function checked(message: Uint8Array, format: RequestFormat): Promise<Uint8Array> {
  await check(message, format);
  return message;
}

/** Looks at a message before it is parsed. @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields */
export async function check(
  message: Uint8Array,
  { method, json, ignoreUnknown }: Pick<RequestFormat, "method" | "json" | "ignoreUnknown">,
): Promise<void> {
  const desc = method.input;
  if (json) {
    assertFewJsonValues(message);
    // The parser would put U+FFFD in place of other bytes, and run another command than the caller's.
    if (!isUtf8(message)) throw new BerthError("INVALID_ARGUMENT", NOT_UTF8);
    const unknown = ignoreUnknown ? undefined : unknownField(desc, parse(message));
    if (unknown !== undefined) throw unknown;
  } else assertFewValues(desc, message);
  if (message.length > LARGE_BYTES) await setImmediate();
}

const NOT_UTF8 =
  "The JSON is not UTF-8. Send text as UTF-8, and what is not text in a field of bytes, as base64.";

/** Undefined for what is not JSON: the library says what is wrong with it. */
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

/** Small pieces are joined up to this length: each costs some two hundred bytes beside its own. */
const JOINED_BYTES = 4096;

/** Bytes that have come, until they are taken. Only small ones are copied. */
export class Pending {
  #chunks: Uint8Array[] = [];
  /** What small pieces are joined in. */
  #joined: Buffer<ArrayBuffer> | undefined;
  size = 0;

  push(chunk: Uint8Array): void {
    if (!this.#join(chunk)) this.#chunks.push(chunk);
    this.size += chunk.length;
  }

  /** Adds a piece to the last one; false: they are too long for that. */
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
    // What was taken lies before this.
    this.#joined.set(chunk, end);
    this.#chunks[this.#chunks.length - 1] = this.#joined.subarray(last.byteOffset, end + chunk.length);
    return true;
  }

  /** The first bytes, if so many have come. */
  peek(length: number): Buffer | undefined {
    if (this.size < length) return undefined;
    const [first] = this.#chunks;
    if (first !== undefined && first.length >= length) return asBuffer(first).subarray(0, length);
    return Buffer.concat(this.#chunks, length);
  }

  /** Removes the first bytes, which have come. They are copied only where they came in several pieces. */
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
 * The header by which a client that may be newer than the server has it ignore
 * fields of JSON that it does not know: `true`.
 */
export const IGNORE_UNKNOWN_HEADER = "berth-ignore-unknown-fields";

/** A longer name is not a slip of a known one. */
const MAX_NAME = 64;

/**
 * Finds a field of a JSON message that its type does not have, or a name that its
 * enum does not have. The parser would take `{"content": …}` for a message without
 * content, and `{"onDisconnect": "DETACH"}` for one that leaves the default.
 */
export function unknownField(desc: DescMessage, json: unknown): BerthError | undefined {
  return inMessage(desc, json, "");
}

/** What else is of a wrong kind is left to the parser. */
function inMessage(desc: DescMessage, json: unknown, path: string): BerthError | undefined {
  if (desc.typeName === DURATION && typeof json !== "object" && !isDurationText(json))
    return noDuration(json, path);
  // Types such as Struct and Timestamp have a JSON of their own.
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

/** A path is quoted twice, and advice follows it. */
const MAX_PATH = 256;

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * What a message may hold, so that it is parsed and looked through in less than
 * a tenth of a second: two bytes make an empty message, so a parser turns 4 MiB
 * of them into two million objects, and holds the event loop for seconds.
 */
const MAX_VALUES = 64_000;
/** A message within a message, or an entry of a map, costs as much as so many plain values. */
const VALUES_PER_MESSAGE = 8;
/** The same bound for JSON, where a value has a separator, and an entry of a map two. */
const MAX_SEPARATORS = MAX_VALUES / VALUES_PER_MESSAGE;
/** Messages of so many bytes cannot hold too much. */
const SMALL_BYTES = 16 * 1024;
/** As deep as the parser goes. */
const MAX_DEPTH = 100;

const WIRE_TYPE = { varint: 0, bit64: 1, bytes: 2, startGroup: 3, endGroup: 4, bit32: 5 } as const;

/** @throws BerthError `MESSAGE_TOO_LARGE` for an encoded message of more values than the service parses */
export function assertFewValues(desc: DescMessage, bytes: Uint8Array): void {
  if (bytes.length > SMALL_BYTES) new ValueCounter(bytes).count(shapeOf(desc), bytes.length, 0);
}

/** @throws BerthError `MESSAGE_TOO_LARGE` for JSON of more values than the service parses */
function assertFewJsonValues(bytes: Uint8Array): void {
  if (!hasFewValues(bytes, MAX_SEPARATORS)) throw tooManyValues(MAX_SEPARATORS);
}

/** The fields of a message that hold more than one value: messages by their shape, numbers that are packed. */
type Shape = ReadonlyMap<number, Shape | "packed">;

const shapes = new WeakMap<DescMessage, Shape>();

function shapeOf(desc: DescMessage): Shape {
  const known = shapes.get(desc);
  if (known !== undefined) return known;
  const shape = new Map<number, Shape | "packed">();
  // Before its fields: messages contain themselves.
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

/** Walks over a message without making anything of it. What is malformed ends the walk: the parser refuses it. */
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
          // What is in a group is counted with what surrounds it.
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

  /** The low 32 bits, which is all that a tag or a length has. */
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
