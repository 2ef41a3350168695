import { hasFewValues } from "../../../base/json.ts";

/** A message from the driver: JSON, and possibly binary data. */
export interface Frame {
  readonly header: unknown;
  readonly payload: Buffer;
}

/** Bytes from a driver that are not a valid frame. Nothing after them can be read. */
export class BadFrame extends Error {}

const LENGTHS = 8;
/** More than the JSON of the largest accessibility tree. */
const MAX_HEADER_BYTES = 1 << 20;
/** A picture of the largest screen, uncompressed. */
const MAX_PAYLOAD_BYTES = 64 << 20;
const MAX_VALUES = 50_000;
/** Nesting of objects and lists: the code that reads them is recursive. */
export const MAX_DEPTH = 160;

/** Splits a stream into frames: two lengths of 4 bytes, big-endian, then JSON and the payload. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #size = 0;

  /** Takes the next bytes, and returns the frames that they complete. @throws BadFrame. */
  push(chunk: Buffer): Frame[] {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    const frames: Frame[] = [];
    for (let frame = this.#next(); frame !== undefined; frame = this.#next()) frames.push(frame);
    return frames;
  }

  #next(): Frame | undefined {
    if (this.#size < LENGTHS) return undefined;
    const lengths = this.#first(LENGTHS);
    const [header, payload] = [lengths.readUInt32BE(0), lengths.readUInt32BE(4)];
    if (header > MAX_HEADER_BYTES || payload > MAX_PAYLOAD_BYTES) throw new BadFrame("a frame is too large");
    const size = LENGTHS + header + payload;
    if (this.#size < size) return undefined;
    const all = this.#first(size);
    this.#chunks[0] = all.subarray(size);
    this.#size -= size;
    return {
      header: parse(all.subarray(LENGTHS, LENGTHS + header)),
      payload: all.subarray(LENGTHS + header, size),
    };
  }

  /** A buffer that starts with the next `size` bytes, which must have arrived. */
  #first(size: number): Buffer {
    const [first] = this.#chunks;
    if (first !== undefined && first.length >= size) return first;
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [all];
    return all;
  }
}

function parse(json: Buffer): unknown {
  if (!hasFewValues(json, MAX_VALUES)) throw new BadFrame("a frame has too many values");
  if (depthOf(json) > MAX_DEPTH) throw new BadFrame("a frame is nested too deeply");
  try {
    return JSON.parse(json.toString());
  } catch {
    throw new BadFrame("a frame holds no JSON");
  }
}

const [QUOTE, BACKSLASH] = Buffer.from('"\\');
const OPENING = new Set(Buffer.from("[{"));
const CLOSING = new Set(Buffer.from("]}"));

/** How deeply lists and objects are nested in JSON text. */
function depthOf(json: Buffer): number {
  let [depth, deepest, quoted] = [0, 0, false];
  for (let at = 0; at < json.length; at++) {
    const byte = json[at] ?? 0;
    if (byte === BACKSLASH) at++;
    else if (byte === QUOTE) quoted = !quoted;
    else if (quoted) continue;
    else if (OPENING.has(byte)) deepest = Math.max(deepest, ++depth);
    else if (CLOSING.has(byte)) depth--;
  }
  return deepest;
}
