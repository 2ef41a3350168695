import { isUtf8 } from "node:buffer";
import { type ByteString, toBytes } from "../../base/byte-string.ts";
import { TurnShare } from "../../base/turn-share.ts";
import { encodePaxMap } from "./sparse-map.ts";
import {
  BLOCK_BYTES,
  encodePax,
  type PlainTarEntry,
  paddingOf,
  type SparseMap,
  type TarEntry,
} from "./tar-entry.ts";

/** How to write what does not fit into a header: `pax` is the standard; `gnu` can be read by every small tar too. */
export type TarDialect = "pax" | "gnu";

/** The end marker of a tar. */
export const END_OF_TAR = Buffer.alloc(2 * BLOCK_BYTES);

/** The bytes that pad the last block of content of this size. */
export function padding(size: number): Buffer {
  return END_OF_TAR.subarray(0, paddingOf(size));
}

/**
 * Encodes the header of an entry, which its content and {@link padding} must follow. A file with holes requires `pax`.
 */
export function encodeEntry(entry: PlainTarEntry, dialect: TarDialect): Buffer {
  if (entry.sparse !== undefined) return encodeSparse(entry, entry.sparse);
  return Buffer.concat([
    ...(dialect === "pax" ? paxExtension(entry) : gnuExtension(entry)),
    header(entry, dialect, TYPES[entry.kind]),
  ]);
}

const TYPES: Readonly<Record<PlainTarEntry["kind"], string>> = {
  file: "0",
  "hard-link": "1",
  symlink: "2",
  "character-device": "3",
  "block-device": "4",
  directory: "5",
  fifo: "6",
};

const NAME_BYTES = 100;
const MAX_OCTAL_7 = 0o7777777;
const MAX_OCTAL_11 = 0o77777777777;

/** Uses form 1.0 of GNU's tar. A tool that does not know it sees a file with another name. */
function encodeSparse(entry: PlainTarEntry, map: SparseMap): Buffer {
  const { name } = entry;
  const text = encodePaxMap(map);
  const cut = name.lastIndexOf("/") + 1;
  const stored: PlainTarEntry = {
    ...entry,
    name: `${name.slice(0, cut)}GNUSparseFile.0/${name.slice(cut)}`,
    size: text.length + entry.size,
  };
  const records = new Map([
    ["GNU.sparse.major", "1"],
    ["GNU.sparse.minor", "0"],
    ["GNU.sparse.name", name],
    ["GNU.sparse.realsize", String(map.realSize)],
  ]);
  return Buffer.concat([...paxExtension(stored, records), header(stored, "pax", TYPES[entry.kind]), text]);
}

function paxExtension(entry: TarEntry, more: ReadonlyMap<string, ByteString> = new Map()): Buffer[] {
  const records = new Map<string, ByteString>();
  const long = (name: ByteString): boolean => name.length > NAME_BYTES;
  const names = [...[entry.name, entry.linkName].filter(long), ...more.values()];
  if (!names.every((name) => isUtf8(toBytes(name)))) records.set("hdrcharset", "BINARY");
  if (long(entry.name)) records.set("path", entry.name);
  if (long(entry.linkName)) records.set("linkpath", entry.linkName);
  if (entry.size > MAX_OCTAL_11) records.set("size", String(entry.size));
  if (entry.uid > MAX_OCTAL_7) records.set("uid", String(entry.uid));
  if (entry.gid > MAX_OCTAL_7) records.set("gid", String(entry.gid));
  if (entry.modifyTime < 0 || entry.modifyTime > MAX_OCTAL_11) records.set("mtime", String(entry.modifyTime));
  for (const [key, value] of more) records.set(key, value);
  return records.size === 0 ? [] : extension("x", "pax", encodePax(records));
}

function gnuExtension(entry: TarEntry): Buffer[] {
  const long = (type: string, name: ByteString): Buffer[] =>
    name.length <= NAME_BYTES ? [] : extension(type, "gnu", toBytes(`${name}\0`));
  return [...long("K", entry.linkName), ...long("L", entry.name)];
}

/** Encodes a separate entry that extends the next one. */
function extension(type: string, dialect: TarDialect, body: Buffer): Buffer[] {
  const own: TarEntry = {
    name: dialect === "pax" ? "PaxHeader" : "././@LongLink",
    kind: "file",
    linkName: "",
    mode: 0o644,
    uid: 0,
    gid: 0,
    modifyTime: 0,
    size: body.length,
    deviceMajor: 0,
    deviceMinor: 0,
  };
  return [header(own, dialect, type), body, padding(body.length)];
}

function header(entry: TarEntry, dialect: TarDialect, type: string): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  block.write(entry.name.slice(0, NAME_BYTES), 0, "latin1");
  writeNumber(block, 100, 8, entry.mode);
  writeNumber(block, 108, 8, entry.uid);
  writeNumber(block, 116, 8, entry.gid);
  writeNumber(block, 124, 12, entry.size);
  writeNumber(block, 136, 12, entry.modifyTime);
  block.write(type, 156, "latin1");
  block.write(entry.linkName.slice(0, NAME_BYTES), 157, "latin1");
  block.write(dialect === "pax" ? "ustar\x0000" : "ustar  \0", 257, "latin1");
  if (entry.kind === "character-device" || entry.kind === "block-device") {
    writeNumber(block, 329, 8, entry.deviceMajor);
    writeNumber(block, 337, 8, entry.deviceMinor);
  }
  const sum = block.reduce((total, byte) => total + byte, 8 * 0x20);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/**
 * Writes a number in octal digits if it fits, else in two's complement, which GNU's tar introduced and all tars read.
 */
function writeNumber(block: Buffer, at: number, length: number, value: number): void {
  const digits = value.toString(8).padStart(length - 1, "0");
  if (value >= 0 && digits.length < length) {
    block.write(digits, at, "latin1");
    return;
  }
  let rest = BigInt.asUintN(64, BigInt(value));
  block.fill(value < 0 ? 0xff : 0, at, at + length);
  for (let index = at + length - 1; index >= at && index >= at + length - 8; index--) {
    block[index] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  if (value >= 0) block[at] = 0x80;
}

/** The API's limit for a chunk. */
const MAX_CHUNK_BYTES = 1024 * 1024;

/** What was read at once may have 100,000 parts. So all tars being written share a part of each turn of the event loop. */
const turns = new TurnShare();

/**
 * Joins small parts into chunks of about this size, and cuts large ones. No chunk is empty, and none is larger than 1
 * MiB.
 */
export async function* gather(parts: AsyncIterable<Buffer>, chunkBytes: number): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let bytes = 0;
  for await (const part of parts) {
    const turn = turns.enter();
    if (turn) await turn;
    held.push(part);
    bytes += part.length;
    if (bytes < chunkBytes) continue;
    yield* cut(held.length === 1 ? part : Buffer.concat(held, bytes));
    held = [];
    bytes = 0;
  }
  yield* cut(Buffer.concat(held, bytes));
}

function* cut(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += MAX_CHUNK_BYTES) yield bytes.subarray(at, at + MAX_CHUNK_BYTES);
}
