import { create, type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import fc from "fast-check";
import { codePoint } from "../code-point.ts";

/** The maximum nesting of messages. */
const MAX_DEPTH = 3;

/** Texts that mean something somewhere: paths, ids, patterns, tokens, numbers, quotes and terminators. */
const TELLING = [
  ...[
    "",
    "..",
    "/",
    "/../..",
    "a/../../b",
    "-rf",
    "*",
    "**/{a,b}",
    "[",
    "\0",
    "\n",
    "'",
    '"',
    "$(true)",
    "`",
  ],
  ...[
    "null",
    "__proto__",
    "constructor",
    "NaN",
    "1e999",
    "-1",
    "😀",
    "\u202e",
    "\ud800",
    "eyJhIjoxfQ",
    "bash",
    "vm",
  ],
  ...[
    "/workspace",
    "/proc/self/fd/8",
    "PATH",
    "a=b",
    "root",
    "0:0",
    "docker.io/x:y",
    "example.com:443",
    "sbx-0",
  ],
];

const text = fc.oneof(
  fc.constantFrom(...TELLING),
  fc.string({ unit: "grapheme", maxLength: 12 }),
  fc.string({ unit: codePoint, maxLength: 40 }),
  fc.stringMatching(/^[a-z0-9_-]{1,20}$/),
);
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 20 }),
  text.map((value) => new Uint8Array(Buffer.from(value))),
);
const int32 = fc.oneof(fc.constantFrom(0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 0o755, 1000), fc.integer());
const uint32 = fc.oneof(fc.constantFrom(0, 1, 2 ** 32 - 1, 0o7777), fc.nat());
const int64 = fc.oneof(
  fc.constantFrom(0n, 1n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
);
const uint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const double = fc.double();

/** Nine of ten of these values have a JSON form, which most random numbers and texts do not. */
const WITH_JSON: Record<string, fc.Arbitrary<object>> = {
  "google.protobuf.Duration": fc
    .integer({ min: -1_000_000, max: 1_000_000 })
    .map((seconds) => ({ seconds: BigInt(seconds) })),
  "google.protobuf.Timestamp": fc.nat().map((seconds) => ({ seconds: BigInt(seconds) })),
  "google.protobuf.FieldMask": fc
    .array(fc.constantFrom("labels", "ttl", "timeout", "no_such_field"), { maxLength: 3 })
    .map((paths) => ({ paths })),
};

/** Arbitrary values for a message's fields, which suit their types. */
export function messages(desc: DescMessage, depth = 0): fc.Arbitrary<Message> {
  const any = anyMessages(desc, depth);
  const withJson = WITH_JSON[desc.typeName]?.map((init) => create(desc, init as never));
  return withJson === undefined
    ? any
    : fc.oneof({ arbitrary: withJson, weight: 9 }, { arbitrary: any, weight: 1 });
}

function anyMessages(desc: DescMessage, depth: number): fc.Arbitrary<Message> {
  const fields = desc.fields.filter((field) => depth < MAX_DEPTH || field.message === undefined);
  const values = Object.fromEntries(
    fields
      .filter(({ oneof }) => oneof === undefined)
      .map((field) => [field.localName, fc.option(fieldValue(field, depth), { nil: undefined })]),
  );
  const choices = desc.oneofs.map((oneof) => {
    const cases = oneof.fields
      .filter((field) => fields.includes(field))
      .map((field) => fieldValue(field, depth).map((value) => ({ case: field.localName, value })));
    return [oneof.localName, fc.oneof(fc.constant({ case: undefined }), ...cases)] as const;
  });
  return fc
    .record({ ...values, ...Object.fromEntries(choices) } as Record<string, fc.Arbitrary<unknown>>)
    .map((init) => create(desc, init as never));
}

function fieldValue(field: DescField, depth: number): fc.Arbitrary<unknown> {
  if (field.fieldKind === "map") {
    const value = field.message
      ? messages(field.message, depth + 1)
      : scalar(field.scalar ?? ScalarType.INT32);
    const key =
      field.mapKey === ScalarType.STRING
        ? text.filter((name) => name.isWellFormed())
        : fc.constantFrom("0", "1");
    return fc.array(fc.tuple(key, value), { maxLength: 3 }).map((entries) => Object.fromEntries(entries));
  }
  const one = field.message
    ? messages(field.message, depth + 1)
    : field.enum
      ? fc.oneof(fc.constantFrom(...field.enum.values.map(({ number }) => number)), int32)
      : scalar(field.scalar ?? ScalarType.INT32);
  return field.fieldKind === "list" ? fc.array(one, { maxLength: 3 }) : one;
}

function scalar(type: ScalarType): fc.Arbitrary<unknown> {
  switch (type) {
    case ScalarType.STRING:
      return text.map((value) => value.toWellFormed());
    case ScalarType.BYTES:
      return bytes;
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.DOUBLE:
      return double;
    case ScalarType.FLOAT:
      return fc.float();
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return uint32;
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return int64;
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return uint64;
    default:
      return int32;
  }
}
