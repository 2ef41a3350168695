/**
 * Characters that JSON need not escape but terminals act on: DEL, C1 controls, changes of direction, other line ends.
 */
const ACTIVE = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Escapes in JSON, or in another text that may quote untrusted ones, what would act on a terminal. JSON keeps its value. */
export function escapeActive(text: string): string {
  return text.replace(ACTIVE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Formats a value as JSON in which nothing acts on a terminal. `indent`: as in `JSON.stringify`. */
export function safeJson(value: unknown, indent?: number): string {
  return escapeActive(JSON.stringify(value, undefined, indent));
}
