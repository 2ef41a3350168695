import { randomBytes } from "node:crypto";
import {
  create,
  type DescField,
  type DescMessage,
  type MessageInitShape,
  ScalarType,
} from "@bufbuild/protobuf";

/** The library encodes base64 character by character. From this length on, that takes as long as everything else. */
const MIN_BYTES = 512;
/**
 * Base64 is written in slices of this many bytes, a multiple of three: V8 takes several times as long for a string that
 * is too long for its pages.
 */
const SLICE_BYTES = 48 * 1024;
/** Start of every placeholder. It never leaves the service, so no text of a caller contains it. */
const PLACEHOLDER_PREFIX = randomBytes(12);
/** A multiple of three, so that the base64 has no padding. */
const PLACEHOLDER_BYTES = PLACEHOLDER_PREFIX.length + 3;

type Values = Readonly<Record<string, unknown>>;

/**
 * Serializes a message as JSON, with Node's base64 for long bytes: ten times as fast as the library for the output of
 * commands and the content of files.
 * @param serialize the library's function.
 */
export function toJson<Desc extends DescMessage>(
  desc: Desc,
  init: MessageInitShape<Desc>,
  serialize: (message: never) => Uint8Array,
): Uint8Array {
  const message = create(desc, init);
  const bytes = new Map<string, Uint8Array>();
  const short = withoutLongBytes(desc, message as Values, bytes);
  const text = serialize(short as never);
  if (bytes.size === 0) return text;
  const all = asBuffer(text);
  const places = Array.from(bytes, ([placeholder, value]) => {
    const start = all.indexOf(placeholder);
    return { start, end: start + placeholder.length, value: asBuffer(value) };
  });
  const added = places.reduce((sum, { start, end, value }) => sum + base64Length(value) - (end - start), 0);
  const json = Buffer.allocUnsafe(all.length + added);
  let done = 0;
  let length = 0;
  for (const { start, end, value } of places.sort((one, other) => one.start - other.start)) {
    length += all.copy(json, length, done, start);
    length += writeBase64(json, length, value);
    done = end;
  }
  all.copy(json, length, done);
  return json;
}

/** A JSON text with the base64 of bytes in it. The rest of it must be ASCII. */
export function jsonAround(before: string, bytes: Uint8Array, after: string): Uint8Array {
  const value = asBuffer(bytes);
  const json = Buffer.allocUnsafe(before.length + base64Length(value) + after.length);
  let length = json.write(before, "latin1");
  length += writeBase64(json, length, value);
  json.write(after, length, "latin1");
  return json;
}

function base64Length({ length }: Buffer): number {
  return 4 * Math.ceil(length / 3);
}

/** Writes the base64 of bytes at a position. Returns its length. */
function writeBase64(json: Buffer, position: number, value: Buffer): number {
  let length = 0;
  for (let start = 0; start < value.length; start += SLICE_BYTES) {
    length += json.write(value.toString("base64", start, start + SLICE_BYTES), position + length, "latin1");
  }
  return length;
}

/** The message, or a copy with placeholders instead of long bytes. */
function withoutLongBytes(desc: DescMessage, message: Values, bytes: Map<string, Uint8Array>): Values {
  let copy = message;
  for (const field of fieldsWithBytes(desc)) {
    const { oneof, localName } = field;
    const group = oneof && (message[oneof.localName] as { readonly case?: string; readonly value?: unknown });
    if (group && group.case !== localName) continue;
    const value = group ? group.value : message[localName];
    const short = withoutLong(field, value, bytes);
    if (short === value) continue;
    copy = oneof
      ? { ...copy, [oneof.localName]: { ...group, value: short } }
      : { ...copy, [localName]: short };
  }
  return copy;
}

function withoutLong(field: DescField, value: unknown, bytes: Map<string, Uint8Array>): unknown {
  if (field.message !== undefined) {
    return value === undefined ? undefined : withoutLongBytes(field.message, value as Values, bytes);
  }
  if (!(value instanceof Uint8Array) || value.length < MIN_BYTES) return value;
  const placeholder = Buffer.alloc(PLACEHOLDER_BYTES);
  PLACEHOLDER_PREFIX.copy(placeholder);
  placeholder.writeUIntBE(
    bytes.size,
    PLACEHOLDER_PREFIX.length,
    PLACEHOLDER_BYTES - PLACEHOLDER_PREFIX.length,
  );
  bytes.set(placeholder.toString("base64"), value);
  return placeholder;
}

const known = new WeakMap<DescMessage, readonly DescField[]>();

/** Fields that are bytes or messages. Lists and maps are left to the library. */
function fieldsWithBytes(desc: DescMessage): readonly DescField[] {
  const found =
    known.get(desc) ??
    desc.fields.filter(
      ({ fieldKind, scalar, message }) =>
        (fieldKind === "scalar" && scalar === ScalarType.BYTES) ||
        // Types such as Struct and Duration have their own JSON form.
        (fieldKind === "message" && !message.typeName.startsWith("google.protobuf.")),
    );
  known.set(desc, found);
  return found;
}

function asBuffer({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}
