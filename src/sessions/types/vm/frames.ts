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
const MAX_VALUES = 50_000;
/** Nesting of objects and lists: the code that reads them is recursive. */
export const MAX_DEPTH = 160;

const NOTHING = Buffer.alloc(0);

/** Splits a stream into frames: two lengths of 4 bytes, big-endian, then JSON and the payload. */
export class FrameReader {
  /** The first bytes of a frame, and room for more. Copied: a program decides how small the chunks are. */
  #room = NOTHING;
  #size = 0;
  #reported = 0;
  readonly #onHeld: (bytes: number) => void;

  /** @param onHeld called with the memory that an unfinished frame takes, whenever that changes. */
  constructor(onHeld: (bytes: number) => void = () => {}) {
    this.#onHeld = onHeld;
  }

  /**
   * Takes the next bytes, and returns the frames that they complete.
   * @param maxPayloadBytes what a payload may have. A frame that announces more is refused before it arrives.
   * @throws BadFrame.
   */
  push(chunk: Buffer, maxPayloadBytes: number): Frame[] {
    const sizeAt = (bytes: Buffer) => sizeOf(bytes, maxPayloadBytes);
    let rest = this.#size === 0 ? chunk : this.#keep(chunk, sizeAt(this.#room.subarray(0, this.#size)));
    const frames: Frame[] = [];
    for (let size = sizeAt(rest); size !== undefined && size <= rest.length; size = sizeAt(rest)) {
      frames.push(frameOf(rest.subarray(0, size)));
      rest = rest.subarray(size);
    }
    if (this.#size > 0 && frames.length === 0) return frames;
    // The frames may be views of it.
    this.clear();
    this.#keep(rest, undefined);
    return frames;
  }

  /** Whether nothing has arrived of an unfinished frame. */
  get isEmpty(): boolean {
    return this.#size === 0;
  }

  /** Drops what has arrived of a frame. */
  clear(): void {
    this.#room = NOTHING;
    this.#size = 0;
    this.#report();
  }

  #report(): void {
    const bytes = this.#room.length;
    if (bytes === this.#reported) return;
    this.#reported = bytes;
    this.#onHeld(bytes);
  }

  /** Returns all bytes that are kept. @param frameSize how many there will be, if that is known. */
  #keep(chunk: Buffer, frameSize: number | undefined): Buffer {
    const size = this.#size + chunk.length;
    const limit = frameSize === undefined ? undefined : Math.max(frameSize, size);
    this.#room = withRoom(this.#room, this.#size, size, limit);
    chunk.copy(this.#room, this.#size);
    this.#size = size;
    this.#report();
    return this.#room.subarray(0, size);
  }
}

/** The size of the frame that starts here. Undefined if its lengths have not arrived. @throws BadFrame. */
function sizeOf(bytes: Buffer, maxPayloadBytes: number): number | undefined {
  if (bytes.length < LENGTHS) return undefined;
  const [header, payload] = [bytes.readUInt32BE(0), bytes.readUInt32BE(4)];
  if (header > MAX_HEADER_BYTES || payload > maxPayloadBytes) throw new BadFrame("a frame is too large");
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
