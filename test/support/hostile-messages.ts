import type { DescField, DescMessage } from "@bufbuild/protobuf";

/** A request message that is designed to be slow to process. */
export interface HostileMessage {
  readonly about: string;
  /** Made when it is sent: most have 4 MiB. */
  bytes(): Buffer;
  /** False if it exceeds what the service accepts. */
  readonly admitted?: false;
}

/** The largest message that the service reads. */
const FULL_BYTES = 4 * 1024 * 1024 - 1024;
/** How many values are accepted. A message counts as 8. */
const ADMITTED_VALUES = 60_000;
const ADMITTED_MESSAGES = 6_500;
/** The length of a map's keys, which are different. */
const KEY_BYTES = 4;
/** How deep messages are inspected. */
const MAX_DEPTH = 4;

const UNKNOWN_FIELD = Buffer.from([0xf8, 0x7f, 0]);

/**
 * Messages of a type that can burden a parser and the code behind it: floods of every repeated field, a text of maximum
 * length in every text field, unknown fields. Messages beyond the limits are refused in the same way whatever they
 * contain, so they are only created for types that are not in `seen` yet, and so are floods of nested messages.
 */
export function hostileMessages(desc: DescMessage, seen: Set<string>): HostileMessage[] {
  const unknown: HostileMessage = {
    about: "unknown fields",
    bytes: () => repeat(UNKNOWN_FIELD, FULL_BYTES / UNKNOWN_FIELD.length),
    admitted: false,
  };
  const admitted = { about: "unknown fields, admitted", bytes: () => repeat(UNKNOWN_FIELD, ADMITTED_VALUES) };
  const all = [unknown, admitted, ...texts(desc), ...floods(desc, (inner) => inner, "", [], seen)];
  const first = seen.size === 0;
  seen.add(desc.typeName);
  return first ? all : all.filter((message) => !("admitted" in message));
}

function texts(desc: DescMessage): HostileMessage[] {
  const fields = desc.fields.filter(({ fieldKind, scalar }) => fieldKind === "scalar" && isText(scalar));
  if (fields.length === 0) return [];
  const unit = Buffer.from("/*a\u8a9e");
  const text = () => repeat(unit, (FULL_BYTES / fields.length - 16) / unit.length);
  const bytes = () => Buffer.concat(fields.map(({ number }) => delimited(number, text())));
  return [{ about: "texts", bytes }];
}

/** The numbers of string and bytes in descriptors. */
function isText(scalar: number | undefined): boolean {
  return scalar === 9 || scalar === 12;
}

function floods(
  desc: DescMessage,
  wrap: (inner: Buffer) => Buffer,
  path: string,
  above: readonly string[],
  seen: Set<string>,
): HostileMessage[] {
  if (above.length > MAX_DEPTH || seen.has(desc.typeName)) return [];
  if (above.length > 0) seen.add(desc.typeName);
  return desc.fields.flatMap((field) => {
    const at = path === "" ? field.name : `${path}.${field.name}`;
    const own = flood(field).map(({ bytes, ...rest }) => ({
      ...rest,
      about: `${at}: ${rest.about}`,
      bytes: () => wrap(bytes()),
    }));
    const { message } = field;
    if (message === undefined) return own;
    const inEntry = (inner: Buffer): Buffer =>
      field.fieldKind === "map"
        ? Buffer.concat([delimited(1, Buffer.from("k")), delimited(2, inner)])
        : inner;
    const deeper = (inner: Buffer): Buffer => wrap(delimited(field.number, inEntry(inner)));
    return [...own, ...floods(message, deeper, at, [...above, desc.typeName], seen)];
  });
}

function flood(field: DescField): HostileMessage[] {
  if (field.fieldKind === "map") {
    const entry = delimited(field.number, delimited(1, Buffer.alloc(KEY_BYTES)));
    const entries = (count: number): Buffer => {
      const all = repeat(entry, count);
      for (let end = entry.length; end <= all.length; end += entry.length) {
        const key = (end / entry.length).toString(36).padStart(KEY_BYTES, "0");
        all.write(key, end - KEY_BYTES, "latin1");
      }
      return all;
    };
    return [
      { about: "entries", bytes: () => entries(FULL_BYTES / 12), admitted: false },
      { about: "entries, admitted", bytes: () => entries(ADMITTED_MESSAGES - 100) },
    ];
  }
  if (field.fieldKind !== "list") return [];
  const element = delimited(field.number, Buffer.alloc(0));
  const admitted = field.message === undefined ? ADMITTED_VALUES : ADMITTED_MESSAGES;
  return [
    { about: "elements", bytes: () => repeat(element, FULL_BYTES / element.length - 16), admitted: false },
    { about: "elements, admitted", bytes: () => repeat(element, admitted) },
  ];
}

function repeat(unit: Buffer, count: number): Buffer {
  return Buffer.alloc(unit.length * Math.floor(count), unit);
}

function delimited(number: number, content: Buffer): Buffer {
  return Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest >>>= 7) {
    if (rest < 0x80) return Buffer.from([...bytes, rest]);
    bytes.push((rest & 0x7f) | 0x80);
  }
}

/**
 * JSON that is designed to be slow: it has what a parser creates most objects for, and, with `full`, the maximum size.
 */
export function hostileJson(
  desc: DescMessage,
  full: boolean,
): { readonly about: string; readonly text: string }[] {
  const name = desc.fields[0]?.jsonName ?? "x";
  const unknown = Array.from({ length: 3_900 }, (_, index) => `"f${index}":0`).join();
  const admitted = [
    { about: "lists, admitted", text: `{"${name}":[${"[],".repeat(3_900)}[]]}` },
    { about: "unknown fields, admitted", text: `{${unknown}}` },
  ];
  if (!full) return admitted;
  return [
    ...admitted,
    { about: "brackets", text: "[".repeat(FULL_BYTES) },
    { about: "lists", text: `{"${name}":[${"[],".repeat(FULL_BYTES / 3 - 20)}[]]}` },
    { about: "an unknown field of a long name", text: `{"${"n".repeat(FULL_BYTES - 20)}":0}` },
    { about: "escapes", text: `{"${name}":"${"\\n".repeat(FULL_BYTES / 2 - 20)}"}` },
  ];
}
