import type { z } from "zod";

const KINDS: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  number: "a number",
  object: "a map of names to values",
  record: "a map of names to values",
  string: "text; put it in quotes",
};

/** What is wrong with a file that an operator writes, where its schema has no words of its own. For `safeParse`. */
export const IN_PLAIN_WORDS = {
  error: (issue: z.core.$ZodRawIssue): string | undefined => {
    if (issue.code === "unrecognized_keys") return `there is no key ${JSON.stringify(issue.keys[0])} here`;
    if (issue.code !== "invalid_type") return undefined;
    if (issue.input === undefined) return "is missing";
    return `is not ${KINDS[issue.expected] ?? `a ${issue.expected}`}`;
  },
};
