import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { hasFewValues } from "../base/json.ts";
import { tooManyValues } from "./error-conversion.ts";

/**
 * What a message may hold, so that it is parsed and looked through in less than
 * a tenth of a second: two bytes make an empty message, so a parser turns 4 MiB
 * of them into two million objects, and holds the event loop for seconds.
 */
const MAX_VALUES = 64_000;
/** A message within a message, or an entry of a map, costs as much as so many plain values. */
const VALUES_PER_MESSAGE = 8;
/** The same bound for JSON, where a value has a separator, and an entry of a map two. */
const MAX_SEPARATORS = MAX_VALUES / VALUES_PER_MESSAGE;
/** Messages of so many bytes cannot hold too much. */
const SMALL_BYTES = 16 * 1024;
/** As deep as the parser goes. */
const MAX_DEPTH = 100;

const WIRE_TYPE = { varint: 0, bit64: 1, bytes: 2, startGroup: 3, endGroup: 4, bit32: 5 } as const;

/** @throws BerthError `MESSAGE_TOO_LARGE` for an encoded message of more values than the service parses */
export function assertFewValues(desc: DescMessage, bytes: Uint8Array): void {
  if (bytes.length > SMALL_BYTES) new ValueCounter(bytes).count(shapeOf(desc), bytes.length, 0);
}

/** @throws BerthError `MESSAGE_TOO_LARGE` for JSON of more values than the service parses */
export function assertFewJsonValues(bytes: Uint8Array): void {
  if (!hasFewValues(bytes, MAX_SEPARATORS)) throw tooManyValues(MAX_SEPARATORS);
}

/** The fields of a message that hold more than one value: messages by their shape, numbers that are packed. */
type Shape = ReadonlyMap<number, Shape | "packed">;

const shapes = new WeakMap<DescMessage, Shape>();

function shapeOf(desc: DescMessage): Shape {
  const known = shapes.get(desc);
  if (known !== undefined) return known;
  const shape = new Map<number, Shape | "packed">();
  // Before its fields: messages contain themselves.
  shapes.set(desc, shape);
  for (const field of desc.fields) {
    const content = contentOf(field);
    if (content !== undefined) shape.set(field.number, content);
  }
  return shape;
}

function contentOf(field: DescField): Shape | "packed" | undefined {
  if (field.fieldKind === "map") {
    return new Map(field.message === undefined ? [] : [[2, shapeOf(field.message)]]);
  }
  if (field.message !== undefined) return shapeOf(field.message);
  const wide = field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES;
  return field.fieldKind === "list" && !wide ? "packed" : undefined;
}

/** Walks over a message without making anything of it. What is malformed ends the walk: the parser refuses it. */
class ValueCounter {
  readonly #bytes: Uint8Array;
  #at = 0;
  #left = MAX_VALUES;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  count(shape: Shape, to: number, depth: number): void {
    while (this.#at < to) {
      this.#take(1);
      const tag = this.#varint();
      switch (tag & 7) {
        case WIRE_TYPE.varint:
          this.#varint();
          break;
        case WIRE_TYPE.bit64:
          this.#at += 8;
          break;
        case WIRE_TYPE.bit32:
          this.#at += 4;
          break;
        case WIRE_TYPE.bytes: {
          const length = this.#varint();
          const end = Math.min(this.#at + length, to);
          const content = shape.get(tag >>> 3);
          if (content === "packed") this.#take(length);
          else if (content !== undefined) {
            this.#take(VALUES_PER_MESSAGE);
            if (depth < MAX_DEPTH) this.count(content, end, depth + 1);
          }
          this.#at = end;
          break;
        }
        case WIRE_TYPE.startGroup:
        case WIRE_TYPE.endGroup:
          // What is in a group is counted with what surrounds it.
          break;
        default:
          return;
      }
    }
  }

  #take(values: number): void {
    this.#left -= values;
    if (this.#left < 0) throw tooManyValues(MAX_VALUES);
  }

  /** The low 32 bits, which is all that a tag or a length has. */
  #varint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at++] ?? 0;
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value >>> 0;
  }
}
