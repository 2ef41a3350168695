import { setImmediate as nextTurn } from "node:timers/promises";

/** A typical item has a few hundred bytes. */
const MAX_ITEM_BYTES = 256 * 1024;
const MAX_ITEMS = 200_000;
/** How long one turn of the event loop may parse. */
const SLICE_MS = 10;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Parses a long JSON array item by item, in slices of a few milliseconds. Parsing it at once would block the event
 * loop.
 * @param json what follows the array's opening bracket.
 * @param take receives each item, an object or an array.
 * @returns false if there are too many items, an item is too large, or the array does not end.
 * @throws `SyntaxError` if an item is not JSON.
 */
export async function parseItems(json: Buffer, take: (item: unknown) => void): Promise<boolean> {
  let end = performance.now() + SLICE_MS;
  let depth = 0;
  let items = 0;
  let from = 0;
  let isQuoted = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at];
    if (isQuoted) {
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) isQuoted = false;
    } else if (byte === QUOTE) isQuoted = true;
    else if (byte === COMMA && depth === 0) from = at + 1;
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) depth++;
    else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) {
      if (depth === 0) return true;
      depth--;
      if (depth > 0) continue;
      if (++items > MAX_ITEMS) return false;
      take(JSON.parse(json.toString("utf8", from, at + 1)));
      from = at + 1;
      if (performance.now() < end) continue;
      await nextTurn();
      end = performance.now() + SLICE_MS;
    }
    if (at - from > MAX_ITEM_BYTES) return false;
  }
  return false;
}
