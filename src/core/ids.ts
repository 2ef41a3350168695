import { randomBytes } from "node:crypto";

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** What an id names. */
export type IdPrefix = "sbx" | "prc" | "ses" | "run";

/** Makes an id: the prefix, `_` and 20 random characters of lower-case base32 (100 bits). */
export function newId(prefix: IdPrefix): string {
  return `${prefix}_${randomBase32(20)}`;
}

/** Random characters of lower-case base32, 5 bits each. */
export function randomBase32(length: number): string {
  let text = "";
  for (const byte of randomBytes(length)) text += BASE32[byte & 31];
  return text;
}
