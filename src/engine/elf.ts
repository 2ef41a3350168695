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
export const PAGE = 0x1_0000;

interface Header {
  readonly type: number;
  readonly machine: number;
  /** The number of segments, which follow the header. */
  readonly segments: number;
  /** Address of the first instruction; none for a library. */
  readonly entry?: number;
}

/** Writes a header for ELF64, little-endian, version 1. */
export function writeHeader(file: Buffer, { type, machine, segments, entry = 0 }: Header): void {
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
export function writeSegment(file: Buffer, index: number, { type, flags, at, to, bytes }: Segment): void {
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
