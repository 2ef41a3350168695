import { fromBytes, fromText } from "../../base/byte-string.ts";
import { invalidArgument } from "../../base/errors.ts";
import type { RequestedPath } from "../../files/path.ts";

const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;

/**
 * Takes a path of a sandbox, given as text or as bytes: 1-4096 bytes without NUL, names of at most 255.
 *
 * @param field the text's field; that of the bytes has `raw_` before it
 * @throws BerthError `INVALID_ARGUMENT`
 */
export function filePath(field: string, text: string, raw: Uint8Array): RequestedPath {
  const rawField = `raw_${field}`;
  if (text === "" && raw.length === 0) throw invalidArgument(field, `is required, or ${rawField}`);
  if (text !== "" && raw.length > 0)
    throw invalidArgument(field, `is given twice: leave out it or ${rawField}`);
  const given =
    raw.length > 0 ? { field: rawField, bytes: fromBytes(raw) } : { field, bytes: fromText(text) };
  const { length } = given.bytes;
  if (length > MAX_PATH_BYTES) {
    throw invalidArgument(given.field, `has ${length} bytes; at most ${MAX_PATH_BYTES} are allowed`);
  }
  if (given.bytes.includes("\0")) throw invalidArgument(given.field, "must not hold a NUL byte");
  if (given.bytes.split("/").some((name) => name.length > MAX_NAME_BYTES)) {
    throw invalidArgument(given.field, `holds a name of more than ${MAX_NAME_BYTES} bytes`);
  }
  return given;
}
