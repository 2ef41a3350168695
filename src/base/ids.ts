import { takeRandom } from "./random.ts";

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** The kind of thing that an id identifies. */
type IdPrefix = "sbx" | "prc" | "ses" | "run";

/** Makes an id: the prefix, `_` and 20 random characters of lower-case base32 (100 bits). */
export function newId(prefix: IdPrefix): string {
  return `${prefix}_${randomBase32(20)}`;
}

/** Random characters of lower-case base32, 5 bits each. */
export function randomBase32(length: number): string {
  let text = "";
  for (const byte of takeRandom(length)) text += BASE32[byte & 31];
  return text;
}

/** A map key from several names. Different owners may use the same id, so keys consist of the owner and the id. */
export function compositeKey(...names: readonly (string | number)[]): string {
  return JSON.stringify(names);
}
