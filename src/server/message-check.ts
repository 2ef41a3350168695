import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  ScalarType,
} from "@bufbuild/protobuf";
import { BerthError, invalidArgument } from "../base/errors.ts";
import { hasFewValues } from "../base/json.ts";
import { nearest } from "../base/nearest.ts";
import { tooManyValues } from "./error-conversion.ts";

/** Larger messages are checked and parsed in two turns of the event loop. */
const LARGE_BYTES = 256 * 1024;

/** What decides how a message is checked. */
export interface MessageFormat {
  readonly method: DescMethod;
  readonly json: boolean;
  readonly ignoreUnknown: boolean;
}

/**
 * Checks a message before it is parsed.
 * @throws BerthError `MESSAGE_TOO_LARGE`, `INVALID_ARGUMENT` for unknown fields
 */
export async function check(
  message: Uint8Array,
  { method, json, ignoreUnknown }: MessageFormat,
): Promise<void> {
  const desc = method.input;
  if (json) {
    assertFewJsonValues(message);
    // The parser would replace other bytes by U+FFFD, and so run a different command.
    if (!isUtf8(message)) throw new BerthError("INVALID_ARGUMENT", NOT_UTF8);
    const unknown = unknownField(desc, parse(message), ignoreUnknown);
    if (unknown !== undefined) throw unknown;
  } else assertFewValues(desc, message);
  if (message.length > LARGE_BYTES) await setImmediate();
}

const NOT_UTF8 =
  "The JSON is not UTF-8. Send text as UTF-8, and what is not text in a field of bytes, as base64.";

/** The library skips it, as JSON's specification allows. */
const BYTE_ORDER_MARK = "\uFEFF";

/** Undefined if it is not JSON: the library reports that. */
function parse(message: Uint8Array): unknown {
  const text = Buffer.from(message.buffer, message.byteOffset, message.length).toString();
  try {
    return JSON.parse(text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text);
  } catch {
    return undefined;
  }
}

/**
 * The header with which a client that may be newer than the server makes it ignore unknown JSON fields, and enum values
 * that do not exist. Value: `true`.
 */
export const IGNORE_UNKNOWN_HEADER = "berth-ignore-unknown-fields";

/** A longer name is not a typo of a known one. */
const MAX_NAME = 64;

/**
 * Finds a field of a JSON message that its type does not have, or an enum value that does not exist. Otherwise the
 * parser would take `{"content": …}` for a message without content, and `{"onDisconnect": "DETACH"}` for the default.
 * Also finds values that the parser takes for something else than they mean.
 *
 * @param ignoreUnknown whether to look for the latter only.
 */
export function unknownField(
  desc: DescMessage,
  json: unknown,
  ignoreUnknown = false,
): BerthError | undefined {
  return inMessage(desc, json, "", ignoreUnknown);
}

/** Other values of a wrong type are left to the parser. */
function inMessage(
  desc: DescMessage,
  json: unknown,
  path: string,
  ignoreUnknown: boolean,
): BerthError | undefined {
  const text = TEXTS.get(desc.typeName);
  if (text !== undefined && json !== null && !(typeof json === "string" && text.form.test(json)))
    return noSuchText(text.what, json, path);
  // Types such as Struct and Timestamp have their own JSON form.
  if (desc.typeName.startsWith("google.protobuf.")) return undefined;
  if (!isObject(json)) return path === "" || json === null ? undefined : noObject(desc, json, path);
  const fields = fieldsOf(desc);
  for (const [name, value] of Object.entries(json)) {
    const at = path === "" ? name : `${path}.${name}`;
    const field = fields.get(name);
    if (field === undefined && ignoreUnknown) continue;
    const found =
      field === undefined ? noSuchField(desc, name, at) : inField(field, value, at, ignoreUnknown);
    if (found !== undefined) return found;
  }
  return undefined;
}

function inField(
  field: DescField,
  value: unknown,
  path: string,
  ignoreUnknown: boolean,
): BerthError | undefined {
  if (field.scalar !== undefined && !SCALARS.has(field.scalar)) return undefined;
  const list = field.fieldKind === "list";
  if (!list && field.fieldKind !== "map") return inValue(field, value, path, ignoreUnknown);
  if (list ? !Array.isArray(value) : !isObject(value)) return undefined;
  for (const [key, part] of Object.entries(value as object)) {
    const at = `${path}[${list ? key : JSON.stringify(key)}]`;
    const found = inValue(field, part, at, ignoreUnknown);
    if (found !== undefined) return found;
  }
  return undefined;
}

function inValue(
  field: DescField,
  value: unknown,
  path: string,
  ignoreUnknown: boolean,
): BerthError | undefined {
  if (field.message !== undefined) return inMessage(field.message, value, path, ignoreUnknown);
  if (field.scalar !== undefined) return SCALARS.get(field.scalar)?.(value, path);
  if (field.enum === undefined || typeof value !== "string" || ignoreUnknown) return undefined;
  return field.enum.values.some(({ name }) => name === value)
    ? undefined
    : noSuchName(field.enum, value, path);
}

/** Checks for texts that the parser takes for something else than they mean. */
const SCALARS: ReadonlyMap<ScalarType, (value: unknown, path: string) => BerthError | undefined> = new Map([
  [ScalarType.BYTES, inBytes],
  [ScalarType.UINT32, inMode],
]);

/** The parser skips blanks, so it would take `hello world` for other bytes. Lines of base64 may be wrapped. */
function inBytes(value: unknown, path: string): BerthError | undefined {
  if (typeof value !== "string" || !value.includes(" ")) return undefined;
  return invalidArgument(
    path.slice(0, MAX_PATH),
    'it holds a blank, so it is not base64. Bytes are base64 in JSON: printf %s "$TEXT" | base64 -w 0',
  );
}

/** Of numbers without a sign, requests have only permission bits, which are usually written in octal. */
function inMode(value: unknown, path: string): BerthError | undefined {
  if (typeof value !== "string" || !/^0\d/.test(value)) return undefined;
  const octal = /^0[0-7]{1,10}$/.test(value) ? ` Octal ${value} is ${Number.parseInt(value, 8)}.` : "";
  return invalidArgument(
    path.slice(0, MAX_PATH),
    `${JSON.stringify(value.slice(0, MAX_NAME))} begins with 0, and numbers in JSON are decimal.${octal}`,
  );
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

/** Messages that are a text in JSON: its form, and what it is. */
const TEXTS: ReadonlyMap<string, { readonly form: RegExp; readonly what: string }> = new Map([
  [
    "google.protobuf.Duration",
    {
      form: /^-?\d+(\.\d{1,9})?s$/,
      what: 'a duration. Give seconds as a text that ends in "s", for instance "300s" or "0.5s".',
    },
  ],
  [
    "google.protobuf.FieldMask",
    {
      form: /^[^_]*$/,
      what: 'a field mask. Give a text of names in lowerCamelCase, with commas between them, for instance "labels,idleTimeout".',
    },
  ],
]);

function noSuchText(what: string, json: unknown, path: string): BerthError {
  const shown = typeof json === "object" ? kindOf(json) : JSON.stringify(json).slice(0, MAX_NAME);
  return invalidArgument(path.slice(0, MAX_PATH), `${shown} is not ${what}`);
}

/** What a value of JSON is, in words. */
function kindOf(json: unknown): string {
  if (Array.isArray(json)) return "a list";
  return typeof json === "object" ? "an object" : `a ${typeof json}`;
}

/** The parser does not say which field it is, and `{"argv": ["ls"]}` is an easy slip. */
function noObject({ typeName, fields }: DescMessage, json: unknown, path: string): BerthError {
  const example = `{${fields.map(({ jsonName }) => `"${jsonName}": …`).join(", ")}}`;
  return invalidArgument(
    path.slice(0, MAX_PATH),
    `takes an object of ${typeName}, not ${kindOf(json)}: ${example}.`,
  );
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
