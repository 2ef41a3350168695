import { type ZodError, z } from "zod";
import { BerthError } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";

/**
 * Parses a value from a caller.
 * @param field of the request, for errors.
 * @throws `INVALID_ARGUMENT` that names each bad value and what it should be.
 */
export function parseWith<T>(schema: z.ZodType<T>, field: string, given: unknown): T {
  const parsed = schema.safeParse(given, { error: problemOf });
  if (parsed.success) return parsed.data;
  throw new BerthError("INVALID_ARGUMENT", problems(field, parsed.error), {
    metadata: { field: pathOf(field, parsed.error.issues[0]?.path ?? []) },
  });
}

/** How many problems an error names. */
const MAX_PROBLEMS = 5;
/** How much it shows of an unknown name. */
const MAX_NAME = 64;

function problems(field: string, { issues }: ZodError): string {
  const shown = issues
    .slice(0, MAX_PROBLEMS)
    .map(({ path, message }) => `${pathOf(field, path)}: ${message}`);
  if (issues.length > MAX_PROBLEMS) shown.push(`and ${issues.length - MAX_PROBLEMS} more`);
  return shown.join("; ");
}

function pathOf(field: string, path: readonly PropertyKey[]): string {
  return [field, ...path.map(String)].join(".");
}

/** What a value must be, keyed by zod's name for it. */
const KINDS: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  tuple: "a list",
  object: "an object",
  record: "an object",
  null: "null",
};

/**
 * Says what is wrong with a value and what is allowed, in words that follow the value's name. Uses the schema's own
 * message if it has one.
 */
const problemOf: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case "invalid_type":
      if (issue.input === undefined) return "is required";
      return `must be ${KINDS[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `must be ${oneOf(issue.values)}`;
    case "too_small":
      return `must ${bound(issue.origin, issue.inclusive ? "at least" : "more than", issue.minimum)}`;
    case "too_big":
      return `must ${bound(issue.origin, issue.inclusive ? "at most" : "less than", issue.maximum)}`;
    case "unrecognized_keys":
      return unknownNames(issue.keys, issue.inst);
    case "not_multiple_of":
      return `must be a multiple of ${issue.divisor}`;
    case "invalid_format":
      return `must be a valid ${issue.format}`;
    case "invalid_union":
      if (Array.isArray(issue.options)) return `must be ${oneOf(issue.options)}`;
      return issue.input === undefined
        ? "is required"
        : (problemOfKind(issue.errors) ?? `must be ${kindsOf(issue.errors)}`);
    default:
      return "is not allowed";
  }
};

function oneOf(values: readonly unknown[]): string {
  const shown = values.map((value) => (typeof value === "string" ? JSON.stringify(value) : String(value)));
  return shown.length === 1 ? String(shown[0]) : `one of ${shown.join(", ")}`;
}

function bound(origin: string, how: string, limit: number | bigint): string {
  if (origin === "string") return `have ${how} ${limit} characters`;
  if (origin === "array" || origin === "set") return `have ${how} ${limit} items`;
  return `be ${how} ${limit}`;
}

function unknownNames(keys: readonly string[], schema: unknown): string {
  const known = schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
  const problems = keys.slice(0, MAX_PROBLEMS).map((key) => {
    const meant = nearest(key, known);
    const shown = JSON.stringify(key.slice(0, MAX_NAME));
    return `${shown} is not known${meant === undefined ? "" : `; is it ${JSON.stringify(meant)}?`}`;
  });
  return problems.join(", ");
}

/** What is wrong with a value of the right kind, if one alternative of a union takes that kind. */
function problemOfKind(alternatives: readonly (readonly z.core.$ZodIssue[])[]): string | undefined {
  const [issues, ...others] = alternatives.filter((all) =>
    all.every(({ code, path }) => path.length > 0 || (code !== "invalid_type" && code !== "invalid_value")),
  );
  const [first] = others.length === 0 ? (issues ?? []) : [];
  return first && (first.path.length > 0 ? `at ${first.path.join(".")}: ${first.message}` : first.message);
}

/** What the alternatives of a union accept. */
function kindsOf(alternatives: readonly (readonly z.core.$ZodIssue[])[]): string {
  const kinds = alternatives.flatMap((issues) =>
    issues.flatMap((issue) =>
      issue.path.length > 0
        ? []
        : issue.code === "invalid_type"
          ? [KINDS[issue.expected] ?? issue.expected]
          : issue.code === "invalid_value"
            ? [oneOf(issue.values)]
            : [],
    ),
  );
  return [...new Set(kinds)].join(" or ") || "another value";
}
