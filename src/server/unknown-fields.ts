import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { type BerthError, invalidArgument } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";

/**
 * The header by which a client that may be newer than the server has it ignore
 * fields of JSON that it does not know: `true`.
 */
export const IGNORE_UNKNOWN_HEADER = "berth-ignore-unknown-fields";

/** A longer name is no slip of a known one. */
const MAX_NAME = 64;

/**
 * Finds a field of a JSON message that its type does not have. The parser would
 * take `{"content": …}` for a message without content, and go on with an empty one.
 */
export function unknownField(desc: DescMessage, json: unknown): BerthError | undefined {
  return inMessage(desc, json, "");
}

/** What is of a wrong kind is left to the parser. */
function inMessage(desc: DescMessage, json: unknown, path: string): BerthError | undefined {
  // Types such as Struct and Duration have a JSON of their own.
  if (desc.typeName.startsWith("google.protobuf.") || !isObject(json)) return undefined;
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
  const { message } = field;
  if (message === undefined) return undefined;
  if (field.fieldKind === "message") return inMessage(message, value, path);
  const list = field.fieldKind === "list";
  if (list ? !Array.isArray(value) : !isObject(value)) return undefined;
  for (const [key, part] of Object.entries(value as object)) {
    const found = inMessage(message, part, `${path}[${list ? key : JSON.stringify(key)}]`);
    if (found !== undefined) return found;
  }
  return undefined;
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
