import type { ByteSource } from "./byte-source.ts";
import { BLOCK_BYTES, decodeNumber, notTar, type Segment, type SparseMap } from "./tar-entry.ts";

/** A file with this many segments takes at least 400 MB on disk. */
const MAX_SEGMENTS = 100_000;
const MAX_DIGITS = 15;

/** Offsets in headers of GNU's tar. A header contains 4 segments, each further block 21. */
const OLD_GNU = { at: 386, count: 4, extendedAt: 482, realSizeAt: 483 };
const OLD_GNU_MORE = { at: 0, count: 21, extendedAt: 504 };
const OLD_GNU_NUMBER = 12;

/** Reads the map that starts in a header of type `S`, as GNU's tar writes it. @throws `ARCHIVE_REJECTED`. */
export async function readOldGnuMap(source: ByteSource, header: Buffer, size: number): Promise<SparseMap> {
  const segments: Segment[] = [];
  const read = (block: Buffer, { at, count, extendedAt }: typeof OLD_GNU_MORE): boolean => {
    for (let place = at; place < at + count * 2 * OLD_GNU_NUMBER; place += 2 * OLD_GNU_NUMBER) {
      const offset = decodeNumber(block, place, OLD_GNU_NUMBER);
      segments.push({ offset, length: decodeNumber(block, place + OLD_GNU_NUMBER, OLD_GNU_NUMBER) });
    }
    return block[extendedAt] !== 0;
  };
  const realSize = decodeNumber(header, OLD_GNU.realSizeAt, OLD_GNU_NUMBER);
  for (let extended = read(header, OLD_GNU); extended; ) {
    if (segments.length > MAX_SEGMENTS) throw tooManyHoles();
    const block = await source.take(BLOCK_BYTES);
    if (block === undefined) throw notTar("it ends too early");
    extended = read(block, OLD_GNU_MORE);
  }
  return checked({ realSize, segments }, size);
}

/**
 * Reads a map in pax's form 1.0, which precedes the data: decimal numbers, each with a newline, padded to whole blocks.
 * Also returns the size of the data after it.
 * @throws `ARCHIVE_REJECTED`.
 */
export async function readPaxMap(
  source: ByteSource,
  realSize: number,
  size: number,
): Promise<{ map: SparseMap; size: number }> {
  let text = "";
  let left = size;
  const next = async (): Promise<number> => {
    for (let end = text.indexOf("\n"); ; end = text.indexOf("\n")) {
      if (end >= 0) {
        const digits = text.slice(0, end);
        text = text.slice(end + 1);
        if (!/^\d+$/.test(digits) || digits.length > MAX_DIGITS) throw damaged();
        return Number(digits);
      }
      left -= BLOCK_BYTES;
      const block = left < 0 ? undefined : await source.take(BLOCK_BYTES);
      if (block === undefined || text.length > MAX_DIGITS) throw damaged();
      text += block.toString("latin1");
    }
  };
  const count = await next();
  if (count > MAX_SEGMENTS) throw tooManyHoles();
  const segments: Segment[] = [];
  while (segments.length < count) segments.push({ offset: await next(), length: await next() });
  return { map: checked({ realSize, segments }, left), size: left };
}

/** Writes a map in pax's form 1.0, padded to whole blocks. */
export function encodePaxMap({ realSize, segments }: SparseMap): Buffer {
  const last = segments.at(-1);
  // Some tars create a file that ends with its last segment.
  const written = last?.offset === realSize ? segments : [...segments, { offset: realSize, length: 0 }];
  const lines = written.flatMap(({ offset, length }) => [offset, length]);
  const text = Buffer.from(`${[written.length, ...lines].join("\n")}\n`);
  return Buffer.concat([text], Math.ceil(text.length / BLOCK_BYTES) * BLOCK_BYTES);
}

/** Finds the offset in the file of each piece of an entry's data. */
export class Placing {
  readonly #segments: readonly Segment[];
  #index = 0;
  #done = 0;

  constructor({ segments }: SparseMap) {
    this.#segments = segments;
  }

  /** Places the next bytes of the entry, in one or more pieces. */
  *place(data: Buffer): Generator<{ readonly offset: number; readonly data: Buffer }> {
    for (let rest = data; rest.length > 0; ) {
      const segment = this.#segments[this.#index];
      if (segment === undefined) throw damaged();
      const piece = rest.subarray(0, segment.length - this.#done);
      yield { offset: segment.offset + this.#done, data: piece };
      this.#done += piece.length;
      rest = rest.subarray(piece.length);
      if (this.#done < segment.length) continue;
      this.#index++;
      this.#done = 0;
    }
  }
}

/** Validates the map, and removes empty segments. */
function checked({ realSize, segments }: SparseMap, size: number): SparseMap {
  let end = 0;
  let sum = 0;
  const kept = segments.filter(({ length }) => length !== 0);
  for (const { offset, length } of kept) {
    if (offset < end || length < 0) throw damaged();
    end = offset + length;
    sum += length;
  }
  if (sum !== size || end > realSize || realSize > Number.MAX_SAFE_INTEGER) throw damaged();
  return { realSize, segments: kept };
}

function damaged(): Error {
  return notTar("the map of a sparse file is damaged");
}

function tooManyHoles(): Error {
  return notTar(`a sparse file has more than ${MAX_SEGMENTS} parts`);
}
