import { hasFewValues } from "../../../base/json.ts";
import { withRoom } from "../../../base/with-room.ts";

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
  /** The first bytes of a frame, and room for more. Copied: a program decides how small the chunks are. */
  #room = Buffer.alloc(0);
  #size = 0;

  /** Takes the next bytes, and returns the frames that they complete. @throws BadFrame. */
  push(chunk: Buffer): Frame[] {
    let rest = this.#size === 0 ? chunk : this.#keep(chunk);
    const frames: Frame[] = [];
    for (let size = sizeOf(rest); size !== undefined && size <= rest.length; size = sizeOf(rest)) {
      frames.push(frameOf(rest.subarray(0, size)));
      rest = rest.subarray(size);
    }
    if (this.#size > 0 && frames.length === 0) return frames;
    // The frames may be views of it.
    this.#room = Buffer.alloc(0);
    this.#size = 0;
    this.#keep(rest);
    return frames;
  }

  /** Returns all bytes that are kept. */
  #keep(chunk: Buffer): Buffer {
    const size = this.#size + chunk.length;
    this.#room = withRoom(this.#room, this.#size, size);
    chunk.copy(this.#room, this.#size);
    this.#size = size;
    return this.#room.subarray(0, size);
  }
}

/** The size of the frame that starts here. Undefined if its lengths have not arrived. @throws BadFrame. */
function sizeOf(bytes: Buffer): number | undefined {
  if (bytes.length < LENGTHS) return undefined;
  const [header, payload] = [bytes.readUInt32BE(0), bytes.readUInt32BE(4)];
  if (header > MAX_HEADER_BYTES || payload > MAX_PAYLOAD_BYTES) throw new BadFrame("a frame is too large");
  return LENGTHS + header + payload;
}

function frameOf(bytes: Buffer): Frame {
  const end = LENGTHS + bytes.readUInt32BE(0);
  return { header: parse(bytes.subarray(LENGTHS, end)), payload: bytes.subarray(end) };
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
