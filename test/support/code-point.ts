import fc from "fast-check";

const FIRST_SURROGATE = 0xd800;
const SURROGATES = 0x800;
const CODE_POINTS = 0x110000;

/**
 * Any code point, as a unit of `fc.string`. fast-check's own unit "binary" draws the same ones, but in each process
 * takes a second and 100 MB to list them all.
 */
export const codePoint = fc.nat({ max: CODE_POINTS - SURROGATES - 1 }).map(
  (place) => String.fromCodePoint(place < FIRST_SURROGATE ? place : place + SURROGATES),
  (text) => {
    const code = typeof text === "string" ? (text.codePointAt(0) ?? -1) : -1;
    if (code < 0 || text !== String.fromCodePoint(code)) throw new Error("Not a code point.");
    if (code < FIRST_SURROGATE) return code;
    if (code < FIRST_SURROGATE + SURROGATES) throw new Error("Half of a code point.");
    return code - SURROGATES;
  },
);
