import { invalidArgument } from "../../base/errors.ts";

const MAX_BYTES = 256;

/**
 * Takes an id that the caller made up: 1 to 256 bytes of UTF-8 without control
 * characters. It is a name, never a path.
 *
 * @throws BerthError `INVALID_ARGUMENT`
 */
export function callerId(field: string, id: string): string {
  if (id === "") throw invalidArgument(field, "is required");
  if (!id.isWellFormed()) throw invalidArgument(field, "is not valid Unicode");
  const bytes = Buffer.byteLength(id);
  if (bytes > MAX_BYTES) throw invalidArgument(field, `has ${bytes} bytes; at most ${MAX_BYTES} are allowed`);
  if (/\p{Cc}/u.test(id)) throw invalidArgument(field, "must not hold control characters");
  return id;
}

/** Like {@link callerId}, for an id that may be left out: undefined then. */
export function optionalCallerId(field: string, id: string): string | undefined {
  return id === "" ? undefined : callerId(field, id);
}
