import { invalidArgument } from "../../base/errors.ts";
import { checkText } from "./text.ts";

const MAX_LABELS = 64;
const MAX_KEY_BYTES = 63;
const MAX_VALUE_BYTES = 255;
const RESERVED_PREFIX = "berth.";

/**
 * Takes labels: at most 64; keys of 1-63 bytes that do not begin with `berth.`, values of 0-255 bytes.
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
