/** Numbers of the ELF format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html */
export const ELF = {
  headerBytes: 64,
  segmentBytes: 56,
  type: { executable: 2, sharedObject: 3 },
  segment: { load: 1, dynamic: 2, stack: 0x6474e551 },
  flag: { execute: 1, write: 2, read: 4 },
  /** The processor that a file is for. */
  machine: { x64: 62, arm64: 183 },
} as const;

/** Where {@link staticExecutable} is in memory. */
const LOAD_ADDRESS = 0x40_0000;

/** The largest page of the machines above. */
const PAGE = 0x1_0000;

/** Where the contents of a {@link sharedLibrary} start, and where its writable part does, in the file. */
export const LIBRARY_START = ELF.headerBytes + 4 * ELF.segmentBytes;
const DATA_START = 0x200;
const MAX_CONTENTS = DATA_START - LIBRARY_START;
/** Address of the 16 writable bytes of a {@link sharedLibrary}. They are on a page of their own. */
export const LIBRARY_DATA = PAGE + DATA_START;
/** Sizes of a symbol, and of an entry of the dynamic table. */
export const SYMBOL_BYTES = 24;
const ENTRY_BYTES = 16;
/** What precedes the code of a {@link codeLibrary}: a hash table, a symbol and a string, all of them empty. */
const HASH_BYTES = 16;
const STRINGS_BYTES = 8;
/** Where the code of a {@link codeLibrary} starts in its file. */
export const CODE_START = LIBRARY_START + HASH_BYTES + SYMBOL_BYTES + STRINGS_BYTES;
/** Kinds of entries of the dynamic table. */
export const DYNAMIC = {
  hash: 4,
  strings: 5,
  symbols: 6,
  relocations: 7,
  relocationsBytes: 8,
  relocationBytes: 9,
  stringsBytes: 10,
  symbolBytes: 11,
  init: 12,
  initArray: 25,
  initArrayBytes: 27,
} as const;

interface Header {
  readonly type: number;
  readonly machine: number;
  /** The number of segments, which follow the header. */
  readonly segments: number;
  /** Address of the first instruction; none for a library. */
  readonly entry?: number;
}

/** Writes a header for ELF64, little-endian, version 1. */
function writeHeader(file: Buffer, { type, machine, segments, entry = 0 }: Header): void {
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  file.writeUInt16LE(type, 16);
  file.writeUInt16LE(machine, 18);
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(BigInt(entry), 24);
  file.writeBigUInt64LE(BigInt(ELF.headerBytes), 32);
  file.writeUInt16LE(ELF.headerBytes, 52);
  file.writeUInt16LE(ELF.segmentBytes, 54);
  file.writeUInt16LE(segments, 56);
}

interface Segment {
  readonly type: number;
  readonly flags: number;
  /** Offset in the file. */
  readonly at: number;
  /** Address in memory; from the load address for a library. */
  readonly to: number;
  readonly bytes: number;
}

/** Writes a program header; the first segment has index 0. */
function writeSegment(file: Buffer, index: number, { type, flags, at, to, bytes }: Segment): void {
  const start = ELF.headerBytes + index * ELF.segmentBytes;
  file.writeUInt32LE(type, start);
  file.writeUInt32LE(flags, start + 4);
  const alignment = type === ELF.segment.load ? PAGE : 8;
  for (const [place, value] of [at, to, to, bytes, bytes, alignment].entries())
    file.writeBigUInt64LE(BigInt(value), start + 8 + place * 8);
}

/** Parses machine code: lines of hexadecimal digits, each followed by two spaces and a comment. */
export function machineCode(lines: string): Buffer {
  const hex = lines.split("\n").map((line) => line.trim().split(/ {2,}/)[0]);
  return Buffer.from(hex.join("").replaceAll(" ", ""), "hex");
}

/**
 * An executable that needs no loader and no library. It starts at the first byte of the code.
 * @param dataAt returns the bytes that follow the code, given their address.
 */
export function staticExecutable(
  machine: number,
  code: Buffer,
  dataAt: (address: number) => Buffer = () => Buffer.alloc(0),
): Buffer {
  const start = ELF.headerBytes + ELF.segmentBytes;
  const data = dataAt(LOAD_ADDRESS + start + code.length);
  const file = Buffer.concat([Buffer.alloc(start), code, data]);
  const header = { type: ELF.type.executable, machine, segments: 1 };
  writeHeader(file, { ...header, entry: LOAD_ADDRESS + start });
  const flags = ELF.flag.read | ELF.flag.execute;
  writeSegment(file, 0, { type: ELF.segment.load, flags, at: 0, to: LOAD_ADDRESS, bytes: file.length });
  return file;
}

/**
 * A shared library that needs no other library.
 * @param contents from address {@link LIBRARY_START} on, at most 224 bytes; read-only.
 * @param hasCode whether they are executable too. A file system may forbid that.
 * @param table the entries of its dynamic table.
 */
export function sharedLibrary(
  machine: number,
  contents: Buffer,
  hasCode: boolean,
  table: readonly (readonly [kind: number, value: number])[],
): Buffer {
  if (contents.length > MAX_CONTENTS)
    throw new RangeError(`a library of ${contents.length} bytes; at most ${MAX_CONTENTS} fit`);
  const tableStart = DATA_START + 16;
  const file = Buffer.alloc(tableStart + (table.length + 1) * ENTRY_BYTES);
  writeHeader(file, { type: ELF.type.sharedObject, machine, segments: 4 });
  const { segment, flag } = ELF;
  const flags = flag.read | flag.write;
  // Some loaders write to the dynamic table.
  const writable = (at: number) => ({ flags, at, to: PAGE + at, bytes: file.length - at });
  const access = hasCode ? flag.read | flag.execute : flag.read;
  writeSegment(file, 0, { type: segment.load, flags: access, at: 0, to: 0, bytes: DATA_START });
  writeSegment(file, 1, { type: segment.load, ...writable(DATA_START) });
  writeSegment(file, 2, { type: segment.dynamic, ...writable(tableStart) });
  writeSegment(file, 3, { type: segment.stack, flags, at: 0, to: 0, bytes: 0 });
  contents.copy(file, LIBRARY_START);
  for (const [index, entry] of table.entries())
    for (const [place, value] of entry.entries())
      file.writeBigUInt64LE(BigInt(value), tableStart + index * ENTRY_BYTES + place * 8);
  return file;
}

/**
 * A shared library that runs this code when it is loaded. It depends on no other library, so it works with every loader.
 * @param code ends by returning. Its first byte is at {@link CODE_START} of the file.
 */
export function codeLibrary(machine: number, code: Buffer): Buffer {
  // One empty bucket, and one symbol, which is empty: the library has none.
  const hash = Buffer.alloc(HASH_BYTES);
  hash.writeUInt32LE(1, 0);
  hash.writeUInt32LE(1, 4);
  const before = Buffer.concat([hash, Buffer.alloc(CODE_START - LIBRARY_START - HASH_BYTES)]);
  return sharedLibrary(machine, Buffer.concat([before, code]), true, [
    [DYNAMIC.init, CODE_START],
    [DYNAMIC.hash, LIBRARY_START],
    [DYNAMIC.strings, CODE_START - STRINGS_BYTES],
    [DYNAMIC.symbols, LIBRARY_START + HASH_BYTES],
    [DYNAMIC.stringsBytes, 1],
    [DYNAMIC.symbolBytes, SYMBOL_BYTES],
  ]);
}
