import type { ByteString } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import type { TarKind } from "./tar-entry.ts";

/** The fields of a header block, as they stand there. */
export interface RawHeader {
  readonly name: ByteString;
  /** The character that tells the kind. */
  readonly type: string;
  readonly linkName: ByteString;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modifyTime: number;
  readonly size: number;
  readonly deviceMajor: number;
  readonly deviceMinor: number;
}

const CHECKSUM_AT = 148;
const CHECKSUM_END = 156;
const SPACE = 0x20;

/**
 * Reads a header block of any dialect: v7, ustar, GNU, pax.
 * @throws `ARCHIVE_REJECTED` when it is none.
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

/** What the character in a header stands for. */
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
  // Contiguous: a file that lies in one piece where the system can do that.
  "7": "file",
};

/** Makes the error for bytes that are no tar. */
export function notTar(problem: string): BerthError {
  return new BerthError("ARCHIVE_REJECTED", `The archive is not a tar: ${problem}.`);
}

/** Sums the bytes, those of the checksum itself as spaces. Old tars took them as signed. */
function checkSum(block: Buffer): void {
  let sum = 0;
  let signedSum = 0;
  for (let at = 0; at < block.length; at++) {
    const byte = at >= CHECKSUM_AT && at < CHECKSUM_END ? SPACE : (block[at] ?? 0);
    sum += byte;
    signedSum += byte < 0x80 ? byte : byte - 0x100;
  }
  const told = decodeNumber(block, CHECKSUM_AT, 8);
  if (told !== sum && told !== signedSum) throw notTar("the checksum of a header is wrong");
}

function text(block: Buffer, at: number, length: number): ByteString {
  const field = block.toString("latin1", at, at + length);
  const end = field.indexOf("\0");
  return end < 0 ? field : field.slice(0, end);
}

/** A number in octal digits, or, with the first bit set, in two's complement. @throws `ARCHIVE_REJECTED`. */
export function decodeNumber(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if (first < 0x80) {
    const digits = text(block, at, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw notTar("a number in a header is none");
    return digits === "" ? 0 : Number.parseInt(digits, 8);
  }
  let value = first === 0xff ? -1 : first & 0x7f;
  for (let index = 1; index < length; index++) value = value * 256 + (block[at + index] ?? 0);
  if (!Number.isSafeInteger(value)) throw notTar("a number in a header is too large");
  return value;
}
