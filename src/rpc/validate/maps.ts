import { invalidArgument } from "../../core/errors.ts";
import { checkText } from "./text.ts";

const MOST_VARIABLES = 1024;
const MOST_VARIABLE_BYTES = 131_071;
const MOST_LABELS = 64;
const MOST_LABEL_KEY_BYTES = 63;
const MOST_LABEL_VALUE_BYTES = 255;
const RESERVED_PREFIX = "berth.";

/** An environment. @throws `INVALID_ARGUMENT` for too many entries, or a name or value that no process can have. */
export function checkEnv(
  field: string,
  env: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const entries = Object.entries(env);
  if (entries.length > MOST_VARIABLES) throw tooMany(field, entries.length, MOST_VARIABLES);
  for (const [name, value] of entries) {
    const place = `${field}[${JSON.stringify(name)}]`;
    if (name === "") throw invalidArgument(field, "the name of a variable is empty.");
    if (name.includes("=")) throw invalidArgument(place, 'the name of a variable cannot hold "=".');
    checkText(place, `${name}=${value}`, { mostBytes: MOST_VARIABLE_BYTES });
  }
  return env;
}

/** Labels. @throws `INVALID_ARGUMENT` for too many, too long or reserved ones. */
export function checkLabels(
  field: string,
  labels: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const entries = Object.entries(labels);
  if (entries.length > MOST_LABELS) throw tooMany(field, entries.length, MOST_LABELS);
  for (const [key, value] of entries) {
    const place = `${field}[${JSON.stringify(key)}]`;
    if (key === "") throw invalidArgument(field, "the key of a label is empty.");
    if (key.startsWith(RESERVED_PREFIX))
      throw invalidArgument(
        place,
        `keys that begin with ${JSON.stringify(RESERVED_PREFIX)} are Berth's own.`,
      );
    checkText(place, key, { mostBytes: MOST_LABEL_KEY_BYTES });
    checkText(place, value, { mostBytes: MOST_LABEL_VALUE_BYTES });
  }
  return labels;
}

function tooMany(field: string, count: number, most: number) {
  return invalidArgument(field, `there are ${count} entries; at most ${most} are allowed.`);
}
