import { invalidArgument } from "../../base/errors.ts";

const MAX_VARIABLES = 1024;
/** Linux takes no longer string in an environment: `NAME=value` and a closing NUL. */
const MAX_STRING_BYTES = 128 * 1024;

/**
 * Takes environment variables, at most 1024. Names are not empty and hold
 * neither `=` nor NUL, values hold no NUL.
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
  for (const [name, value] of entries) {
    const at = `${field}[${JSON.stringify(name.slice(0, 100))}]`;
    if (name === "") throw invalidArgument(field, "a variable has an empty name");
    if (/[=\0]/.test(name)) throw invalidArgument(at, 'a name must not hold "=" or NUL');
    if (value.includes("\0")) throw invalidArgument(at, "a value must not hold NUL");
    if (Buffer.byteLength(name) + Buffer.byteLength(value) + 2 > MAX_STRING_BYTES) {
      throw invalidArgument(
        at,
        `is longer than the ${MAX_STRING_BYTES / 1024} KiB that Linux allows for one variable`,
      );
    }
  }
  return variables;
}
