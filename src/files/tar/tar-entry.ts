import { type ByteString, fromBytes, toBytes } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";

/** The kind of an entry. `other` is any of the many kinds that only some tars know. */
export type TarKind =
  | "file"
  | "hard-link"
  | "symlink"
  | "character-device"
  | "block-device"
  | "directory"
  | "fifo"
  | "other";

/** A range of data in a file with holes. */
export interface Segment {
  readonly offset: number;
  readonly length: number;
}

/** The map of a file with holes. The entry contains only the data. */
export interface SparseMap {
  /** Size of the file, including holes. */
  readonly realSize: number;
  /** In order, not empty, not overlapping. The gaps between them read as zeros. */
  readonly segments: readonly Segment[];
}

/** One entry of a tar, without its content. */
export interface TarEntry {
  /** As in the tar. */
  readonly name: ByteString;
  readonly kind: TarKind;
  /** Target of a link, as in the tar; otherwise empty. */
  readonly linkName: ByteString;
  /** 0 to 07777 octal. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Whole seconds since 1970. */
  readonly modifyTime: number;
  /** Bytes of content that follow; 0 if there is none. */
  readonly size: number;
  /** For a file with holes: where the content belongs. */
  readonly sparse?: SparseMap | undefined;
  readonly deviceMajor: number;
  readonly deviceMinor: number;
}

/** An entry of a kind that every tar knows. */
export type PlainTarEntry = TarEntry & { readonly kind: Exclude<TarKind, "other"> };

/** Headers and contents fill whole blocks of this many bytes. */
export const BLOCK_BYTES = 512;

/** How many bytes pad the last block of content of this size. */
export function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** The fields of a header block, unchanged. */
export interface RawHeader extends Omit<TarEntry, "kind" | "sparse"> {
  /** The character for the kind. */
  readonly type: string;
}

const CHECKSUM_AT = 148;
const CHECKSUM_END = 156;
const SPACE = 0x20;

/**
 * Reads a header block of any dialect: v7, ustar, GNU, pax.
 * @throws `ARCHIVE_REJECTED` if it is not one.
 */
export function decodeHeader(block: Buffer): RawHeader {
  checkSum(block);
  const prefix = block.toString("latin1", 257, 263) === "ustar\0" ? text(block, 345, 155) : "";
  const name = text(block, 0, 100);
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    type: block[156] === 0 ? "0" : String.fromCharCode(block[156] ?? 0),
    linkName: text(block, 157, 100),
    mode: decodeNumber(block, 100, 8) & 0o7777,
    uid: decodeNumber(block, 108, 8),
    gid: decodeNumber(block, 116, 8),
    size: decodeNumber(block, 124, 12),
    modifyTime: decodeNumber(block, 136, 12),
    deviceMajor: decodeNumber(block, 329, 8),
    deviceMinor: decodeNumber(block, 337, 8),
  };
}

/** The kind for the character in a header. */
export function kindOf(type: string): TarKind {
  return KINDS[type] ?? "other";
}

const KINDS: Readonly<Record<string, TarKind>> = {
  "0": "file",
  "1": "hard-link",
  "2": "symlink",
  "3": "character-device",
  "4": "block-device",
  "5": "directory",
  "6": "fifo",
  // Contiguous: a file stored in one piece, on systems that support that.
  "7": "file",
};

/** The error for bytes that are not a tar. */
export function notTar(problem: string): BerthError {
  return new BerthError("ARCHIVE_REJECTED", `The archive is not a tar: ${problem}.`);
}

/**
 * Verifies the checksum: the sum of all bytes, with the checksum field itself as spaces. Old tars summed signed bytes.
 */
function checkSum(block: Buffer): void {
  let sum = 0;
  let signedSum = 0;
  for (let at = 0; at < block.length; at++) {
    const byte = at >= CHECKSUM_AT && at < CHECKSUM_END ? SPACE : (block[at] ?? 0);
    sum += byte;
    signedSum += byte < 0x80 ? byte : byte - 0x100;
  }
  const expected = decodeNumber(block, CHECKSUM_AT, 8);
  if (expected !== sum && expected !== signedSum) throw notTar("the checksum of a header is wrong");
}

function text(block: Buffer, at: number, length: number): ByteString {
  const field = block.toString("latin1", at, at + length);
  const end = field.indexOf("\0");
  return end < 0 ? field : field.slice(0, end);
}

/** Decodes a number in octal digits or, if the first bit is set, in two's complement. @throws `ARCHIVE_REJECTED`. */
export function decodeNumber(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if (first < 0x80) {
    const digits = text(block, at, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw notTar("a header has text where a number belongs");
    return digits === "" ? 0 : Number.parseInt(digits, 8);
  }
  let value = first === 0xff ? -1 : first & 0x7f;
  for (let index = 1; index < length; index++) value = value * 256 + (block[at + index] ?? 0);
  if (!Number.isSafeInteger(value)) throw notTar("a number in a header is too large");
  return value;
}

const NEWLINE = 0x0a;
/** Limit of records in one pax header. Extended attributes are a few hundred at most. */
export const MAX_RECORDS = 10_000;

export function tooManyRecords(): BerthError {
  return notTar("an extended header has too many records");
}

/**
 * Reads the records of a pax header: `<length> <key>=<value>\n`, where values may be any bytes.
 * @throws `ARCHIVE_REJECTED` if they are invalid.
 */
export function decodePax(body: Buffer): Map<string, ByteString> {
  const records = new Map<string, ByteString>();
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(SPACE, at);
    const digits = space < 0 ? "" : body.toString("latin1", at, space);
    const end = at + Number(digits);
    const equals = body.indexOf("=", space);
    const isRecord =
      /^[1-9]\d{0,9}$/.test(digits) &&
      end <= body.length &&
      equals > space &&
      equals < end &&
      body[end - 1] === NEWLINE;
    if (!isRecord) throw notTar("an extended header is damaged");
    if (records.size === MAX_RECORDS) throw tooManyRecords();
    records.set(body.toString("latin1", space + 1, equals), fromBytes(body.subarray(equals + 1, end - 1)));
    at = end;
  }
  return records;
}

/** Writes records of a pax header. */
export function encodePax(records: ReadonlyMap<string, ByteString>): Buffer {
  const lines = Array.from(records, ([key, value]) => {
    const rest = ` ${key}=${value}\n`;
    // The length counts its own digits.
    let length = rest.length + 1;
    while (String(length).length + rest.length !== length) length++;
    return `${length}${rest}`;
  });
  return toBytes(lines.join(""));
}
