import { createHash } from "node:crypto";
import { posix } from "node:path";
import { type DescMessage, type Message, toBinary } from "@bufbuild/protobuf";
import { type Duration, durationFromMs, type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import { fromBytes, fromText } from "../../base/byte-string.ts";
import { invalidArgument } from "../../base/errors.ts";
import type { RequestedPath } from "../../files/path.ts";
import type { SandboxName } from "../../sandboxes/manager.ts";
import { callOf, ownerOf } from "../../server/call.ts";
import { MAX_TIMEOUT_MS } from "../../server/limits.ts";
import type { RequestKey } from "../../state/request-log.ts";

const MAX_PATH_BYTES = 4096;

/**
 * Validates text that is passed to the kernel or the engine.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it contains NUL or exceeds `maxBytes`
 */
export function checkText(field: string, text: string, maxBytes: number): string {
  if (text.includes("\0")) throw invalidArgument(field, "must not contain a NUL byte");
  // A UTF-16 unit takes at most three bytes in UTF-8, so most texts need not be counted.
  const bytes = text.length * 3 <= maxBytes ? 0 : Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalidArgument(field, `has ${bytes} bytes; at most ${maxBytes} are allowed`);
  return text;
}

/**
 * Validates an absolute path, and removes redundant slashes.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is relative, contains `..` or NUL, or is too long
 */
export function absolutePath(field: string, path: string): string {
  checkText(field, path, MAX_PATH_BYTES);
  if (!path.startsWith("/")) throw invalidArgument(field, `${JSON.stringify(path)} is not an absolute path`);
  if (path.split("/").includes("..")) {
    throw invalidArgument(field, `${JSON.stringify(path)} holds ".."; give the path that it means`);
  }
  return posix.normalize(path).replace(/(?<=.)\/$/, "");
}

/** Limits of a number, both inclusive. */
interface Range {
  readonly min: number;
  /** Default: the largest integer that a number represents exactly. */
  readonly max?: number;
}

/**
 * Converts a 64-bit or 32-bit integer of a message to a number.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is out of range
 */
export function integer(field: string, value: bigint | number, range: Range): number {
  const { min, max = Number.MAX_SAFE_INTEGER } = range;
  if (value < min) throw invalidArgument(field, `is ${value}; it must be at least ${min}`);
  if (value > max) throw invalidArgument(field, `is ${value}; it must be at most ${max}`);
  return Number(value);
}

/** Like {@link integer}, for a field in which 0 means the default. Returns undefined for 0. */
export function optionalInteger(field: string, value: bigint | number, range: Range): number | undefined {
  return value === 0n || value === 0 ? undefined : integer(field, value, range);
}

const NANOS_PER_SECOND = 1_000_000_000;
const NANOS_PER_MS = 1_000_000;

/**
 * Converts a duration to milliseconds, rounded up so that a short one does not become zero.
 *
 * @returns undefined if it is not set
 * @throws BerthError `INVALID_ARGUMENT` if it is malformed, negative or longer than 24 days
 */
export function durationToMs(field: string, duration: Duration | undefined): number | undefined {
  if (!duration) return undefined;
  const { seconds, nanos } = duration;
  if (Math.abs(nanos) >= NANOS_PER_SECOND || (seconds > 0n && nanos < 0) || (seconds < 0n && nanos > 0)) {
    throw invalidArgument(field, "is not a valid duration");
  }
  if (seconds < 0n || nanos < 0) throw invalidArgument(field, "must not be negative");
  const ms = Number(seconds) * 1000 + Math.ceil(nanos / NANOS_PER_MS);
  if (ms > MAX_TIMEOUT_MS) throw invalidArgument(field, "must not be longer than 24 days");
  return ms;
}

/** Refuses a timeout of zero, which would end everything before it starts. */
export function positive(field: string, ms: number | undefined): number | undefined {
  if (ms === 0)
    throw invalidArgument(field, "must be more than zero. Leave it unset for the server's default.");
  return ms;
}

/** Converts milliseconds, which may have a fraction, to a duration with a precision of microseconds. */
export function msToDuration(ms: number): Duration {
  const duration = durationFromMs(Math.floor(ms));
  duration.nanos += Math.floor((ms % 1) * 1000) * 1000;
  return duration;
}

/** Converts wall time in milliseconds since the Unix epoch to a timestamp. */
export function msToTimestamp(ms: number): Timestamp {
  return timestampFromMs(Math.round(ms));
}

const MAX_BYTES = 256;

/**
 * Validates an id that the caller chose: 1 to 256 bytes of UTF-8 without control characters. It is a name, never a
 * path.
 *
 * @throws BerthError `INVALID_ARGUMENT`
 */
export function callerId(field: string, id: string): string {
  if (id === "") throw invalidArgument(field, "is required");
  if (!id.isWellFormed()) throw invalidArgument(field, "is not valid Unicode");
  const bytes = Buffer.byteLength(id);
  if (bytes > MAX_BYTES) throw invalidArgument(field, `has ${bytes} bytes; at most ${MAX_BYTES} are allowed`);
  if (/\p{Cc}/u.test(id)) throw invalidArgument(field, "must not contain control characters");
  return id;
}

/** Like {@link callerId}, for an optional id. Returns undefined if it is empty. */
export function optionalCallerId(field: string, id: string): string | undefined {
  return id === "" ? undefined : callerId(field, id);
}

/** The sandbox that a request names, among those of its caller. */
export function sandboxName(
  context: HandlerContext,
  request: { sandboxId: string; generation?: bigint },
): SandboxName {
  const generation = integer("generation", request.generation ?? 0n, { min: 0 });
  return {
    owner: ownerOf(context),
    sandboxId: callerId("sandbox_id", request.sandboxId),
    ...(generation > 0 && { generation }),
  };
}

const MAX_LABELS = 64;
const MAX_KEY_BYTES = 63;
const MAX_VALUE_BYTES = 255;
const RESERVED_PREFIX = "berth.";

/**
 * Validates labels: at most 64; keys of 1-63 bytes that do not start with `berth.`, values of 0-255 bytes.
 *
 * @throws BerthError `INVALID_ARGUMENT` that names the label
 */
export function labels(
  field: string,
  given: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const entries = Object.entries(given);
  if (entries.length > MAX_LABELS) {
    throw invalidArgument(field, `has ${entries.length} labels; at most ${MAX_LABELS} are allowed`);
  }
  for (const [key, value] of entries) {
    const at = `${field}[${JSON.stringify(key.slice(0, 100))}]`;
    if (key === "") throw invalidArgument(field, "a label has an empty key");
    if (key.startsWith(RESERVED_PREFIX)) {
      throw invalidArgument(at, `keys that begin with "${RESERVED_PREFIX}" are reserved`);
    }
    checkText(at, key, MAX_KEY_BYTES);
    checkText(at, value, MAX_VALUE_BYTES);
  }
  return given;
}

const MAX_VARIABLES = 1024;
/** Linux's limit for an environment string: `NAME=value` and the NUL at its end. */
const MAX_STRING_BYTES = 128 * 1024;
/** Leaves room for arguments, and for a command's own variables next to those of its sandbox. */
const MAX_ENVIRONMENT_BYTES = 768 * 1024;

/**
 * Validates environment variables: at most 1024, and 768 KiB. Names are not empty and contain neither `=` nor NUL;
 * values contain no NUL.
 *
 * @throws BerthError `INVALID_ARGUMENT` that names the variable
 */
export function environment(
  field: string,
  variables: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const entries = Object.entries(variables);
  if (entries.length > MAX_VARIABLES) {
    throw invalidArgument(field, `has ${entries.length} variables; at most ${MAX_VARIABLES} are allowed`);
  }
  let bytes = 0;
  for (const [name, value] of entries) {
    const at = `${field}[${JSON.stringify(name.slice(0, 100))}]`;
    if (name === "") throw invalidArgument(field, "a variable has an empty name");
    if (/[=\0]/.test(name)) throw invalidArgument(at, 'a name must not contain "=" or NUL');
    if (value.includes("\0")) throw invalidArgument(at, "a value must not contain NUL");
    const length = Buffer.byteLength(name) + Buffer.byteLength(value) + 2;
    if (length > MAX_STRING_BYTES) {
      throw invalidArgument(
        at,
        `is longer than the ${MAX_STRING_BYTES / 1024} KiB that Linux allows for one variable`,
      );
    }
    bytes += length;
  }
  if (bytes > MAX_ENVIRONMENT_BYTES) {
    throw invalidArgument(
      field,
      `has ${bytes} bytes; at most ${MAX_ENVIRONMENT_BYTES} are allowed. Pass more through a file.`,
    );
  }
  return variables;
}

const MAX_SECRET_VARIABLES = 64;
/** Variables with secrets are kept as long as what has them: a short name suffices for each. */
const MAX_SECRET_VARIABLE_BYTES = 256;

/**
 * Validates variables with the names of the secrets whose values they get: at most 64, with names of at most 256 bytes.
 *
 * @throws BerthError `INVALID_ARGUMENT` that names the variable
 */
export function secretReferences(
  field: string,
  variables: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const names = Object.entries(environment(field, variables));
  if (names.length > MAX_SECRET_VARIABLES) {
    throw invalidArgument(
      field,
      `has ${names.length} variables; at most ${MAX_SECRET_VARIABLES} may hold secrets`,
    );
  }
  for (const [variable, name] of names) {
    const at = `${field}[${JSON.stringify(variable.slice(0, 100))}]`;
    checkText(at, variable, MAX_SECRET_VARIABLE_BYTES);
    if (name === "") throw invalidArgument(at, "names no secret");
    checkText(at, name, 253);
  }
  return variables;
}

const MAX_NAME_BYTES = 255;

/**
 * Validates a path in a sandbox, given as text or as bytes: 1-4096 bytes without NUL, names of at most 255 bytes.
 *
 * @param field the field of the text. The field of the bytes has the prefix `raw_`.
 * @throws BerthError `INVALID_ARGUMENT`
 */
export function filePath(field: string, text: string, raw: Uint8Array): RequestedPath {
  const rawField = `raw_${field}`;
  if (text === "" && raw.length === 0) throw invalidArgument(field, `is required, or ${rawField}`);
  if (text !== "" && raw.length > 0)
    throw invalidArgument(field, `is given twice: leave out ${field} or ${rawField}`);
  const given =
    raw.length > 0 ? { field: rawField, bytes: fromBytes(raw) } : { field, bytes: fromText(text) };
  const { length } = given.bytes;
  if (length > MAX_PATH_BYTES) {
    throw invalidArgument(given.field, `has ${length} bytes; at most ${MAX_PATH_BYTES} are allowed`);
  }
  if (given.bytes.includes("\0")) throw invalidArgument(given.field, "must not contain a NUL byte");
  if (given.bytes.split("/").some((name) => name.length > MAX_NAME_BYTES)) {
    throw invalidArgument(given.field, `holds a name of more than ${MAX_NAME_BYTES} bytes`);
  }
  return given;
}

/**
 * The key under which a request's answer is kept. The fingerprint is a hash of the whole request, because a retry sends
 * the same message again.
 * @param schema of the request: that of the method's requests, unless only one of them has an id
 */
export function requestKey(
  context: HandlerContext,
  request: Message & { readonly requestId: string },
  schema: DescMessage = context.method.input,
): RequestKey {
  const requestId = optionalCallerId("request_id", request.requestId) ?? "";
  const name = { owner: ownerOf(context), method: context.method.name, requestId };
  const hold = callOf(context).account?.hold;
  if (requestId === "") return { ...name, fingerprint: "", hold };
  const message = canonical(schema, request);
  const fingerprint = createHash("sha256").update(message).digest("base64");
  return { ...name, fingerprint, hold };
}

/** The bytes of the message with sorted map entries: a client may send them in a different order the next time. */
function canonical(schema: DescMessage, request: Message): Uint8Array {
  return toBinary(schema, sortKeys(request) as Message);
}

/**
 * Sorts the keys of every object in a value. That sorts the entries of maps; fields of messages are encoded by number
 * anyway.
 */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  const entries = Object.entries(value).map(([key, part]) => [key, sortKeys(part)] as const);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}
