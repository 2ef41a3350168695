/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** An object that JSON can hold. */
export interface JsonObject {
  readonly [key: string]: Json;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** 1 for the bytes that precede a value: `,`, `:`, `[` and `{`. */
const SEPARATORS = new Uint8Array(256);
for (const byte of Buffer.from(",:[{")) SEPARATORS[byte] = 1;

/**
 * Whether JSON text has at most `limit` separators, and therefore hardly more values than that. Takes a fraction of the
 * time of parsing. For untrusted text: parsing a megabyte of brackets would block the event loop for seconds. The
 * result is meaningless for text that is not JSON.
 */
export function hasFewValues(json: Uint8Array, limit: number): boolean {
  // Each separator takes a byte.
  if (json.length <= limit) return true;
  let left = limit;
  let quoted = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at] ?? 0;
    if (byte === BACKSLASH) at++;
    else if (byte === QUOTE) quoted = !quoted;
    else if (!quoted && SEPARATORS[byte] === 1 && --left < 0) return false;
  }
  return true;
}
