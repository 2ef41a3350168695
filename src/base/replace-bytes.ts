import { yieldTurn } from "./async.ts";

/** How many bytes one turn of the event loop searches. */
const SLICE_BYTES = 128 * 1024;
/** How many places one turn of the event loop replaces. */
const SLICE_PLACES = 10_000;

/**
 * The positions of a text in bytes, without overlaps, and at most `max` + 1 of them. Uses Knuth-Morris-Pratt: always
 * linear, while Buffer.indexOf and String.indexOf take quadratic time in the worst case, which a caller can choose.
 */
export async function findAll(
  text: Buffer,
  wanted: Buffer,
  max: number,
  signal: AbortSignal,
): Promise<number[]> {
  const fallback = await fallbacksOf(wanted, signal);
  const found: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && found.length <= max; at++) {
    if (at % SLICE_BYTES === SLICE_BYTES - 1) await yieldTurn(signal);
    while (matched > 0 && text[at] !== wanted[matched]) matched = fallback[matched - 1] ?? 0;
    if (text[at] === wanted[matched]) matched++;
    if (matched < wanted.length) continue;
    found.push(at + 1 - wanted.length);
    matched = 0;
  }
  return found;
}

/** Replaces the bytes at the given positions. */
export async function replaceAt(
  text: Buffer,
  places: readonly number[],
  length: number,
  replacement: Buffer,
  signal: AbortSignal,
): Promise<Buffer> {
  const result = Buffer.allocUnsafe(text.length + places.length * (replacement.length - length));
  let from = 0;
  let to = 0;
  for (const [index, place] of places.entries()) {
    if (index % SLICE_PLACES === SLICE_PLACES - 1) await yieldTurn(signal);
    to += text.copy(result, to, from, place);
    to += replacement.copy(result, to);
    from = place + length;
  }
  text.copy(result, to, from);
  return result;
}

/** For each prefix of the text, the length of the longest proper prefix that is also its suffix. */
async function fallbacksOf(wanted: Buffer, signal: AbortSignal): Promise<Uint32Array> {
  const fallback = new Uint32Array(wanted.length);
  let matched = 0;
  for (let at = 1; at < wanted.length; at++) {
    if (at % SLICE_BYTES === SLICE_BYTES - 1) await yieldTurn(signal);
    while (matched > 0 && wanted[at] !== wanted[matched]) matched = fallback[matched - 1] ?? 0;
    if (wanted[at] === wanted[matched]) matched++;
    fallback[at] = matched;
  }
  return fallback;
}
