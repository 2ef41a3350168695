import { setImmediate } from "node:timers/promises";
import { throwIfAborted } from "../../../base/errors.ts";

/** Bytes that are looked at before the event loop gets its turn. */
const SLICE_BYTES = 128 * 1024;
/** Places that are replaced before. */
const SLICE_PLACES = 10_000;

/**
 * Where a text begins in bytes, places that overlap left out; of more than `max`
 * only that many and one. Knuth, Morris and
 * Pratt's search: linear whatever the two are, where the engine's own takes
 * their product at worst.
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

/** Bytes with what stands at the given places replaced. */
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

/** For each begin of the text, the length of the longest begin that is its end too. */
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

async function yieldTurn(signal: AbortSignal): Promise<void> {
  await setImmediate();
  throwIfAborted(signal);
}
