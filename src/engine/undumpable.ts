/**
 * Machine code of `prctl(PR_SET_DUMPABLE, 0)`, which closes a program's memory
 * and descriptors to other processes of its user.
 */
const CALLS: Partial<Record<NodeJS.Architecture, { readonly machine: number; readonly code: string }>> = {
  // endbr64; mov eax, 157; mov edi, 4; xor esi, esi; syscall; ret
  x64: { machine: 62, code: "f30f1efa b89d000000 bf04000000 31f6 0f05 c3" },
  // mov x8, #167; mov x0, #4; mov x1, #0; svc #0; ret
  arm64: { machine: 183, code: "e81480d2 800080d2 010080d2 010000d4 c0035fd6" },
};

/** Offsets in the file. The dynamic table has a page of its own, since some loaders write to it. */
const AT = { headers: 64, hash: 0x120, symbols: 0x130, strings: 0x148, code: 0x150, dynamic: 0x180 };
const SYMBOL_BYTES = 24;
const ENTRY_BYTES = 16;
/** The largest page of the machines above. */
const PAGE = 0x1_0000;

/** Numbers of the ELF format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html */
const DYNAMIC = { hash: 4, strings: 5, symbols: 6, stringsBytes: 10, symbolBytes: 11, init: 12 };
const SEGMENT = { load: 1, dynamic: 2, stack: 0x6474e551 };
const READ = 4;
const WRITE = 2;
const EXECUTE = 1;

/**
 * A shared library that makes whatever program preloads it undumpable, and does
 * nothing else. It is assembled here because a shell cannot make that call, and
 * no program in an image can make it for a shell. It depends on no other
 * library, so it works with every loader.
 * @returns undefined for an architecture without code above.
 */
export function undumpableLibrary(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const call = CALLS[arch];
  if (call === undefined) return undefined;
  const code = Buffer.from(call.code.replaceAll(" ", ""), "hex");
  const table: readonly (readonly [number, number])[] = [
    [DYNAMIC.init, AT.code],
    [DYNAMIC.hash, AT.hash],
    [DYNAMIC.strings, AT.strings],
    [DYNAMIC.symbols, AT.symbols],
    [DYNAMIC.stringsBytes, 1],
    [DYNAMIC.symbolBytes, SYMBOL_BYTES],
    [0, 0],
  ];
  const tableBytes = table.length * ENTRY_BYTES;
  const file = Buffer.alloc(AT.dynamic + tableBytes);
  writeHeader(file, call.machine);
  writeSegment(file, 0, { type: SEGMENT.load, flags: READ | EXECUTE, at: 0, to: 0, bytes: AT.dynamic });
  const writable = { flags: READ | WRITE, at: AT.dynamic, to: PAGE + AT.dynamic, bytes: tableBytes };
  writeSegment(file, 1, { type: SEGMENT.load, ...writable });
  writeSegment(file, 2, { type: SEGMENT.dynamic, ...writable });
  writeSegment(file, 3, { type: SEGMENT.stack, flags: READ | WRITE, at: 0, to: 0, bytes: 0 });
  // One empty bucket: the library has no symbols.
  file.writeUInt32LE(1, AT.hash);
  file.writeUInt32LE(1, AT.hash + 4);
  code.copy(file, AT.code);
  for (const [index, [tag, value]] of table.entries()) {
    file.writeBigUInt64LE(BigInt(tag), AT.dynamic + index * ENTRY_BYTES);
    file.writeBigUInt64LE(BigInt(value), AT.dynamic + index * ENTRY_BYTES + 8);
  }
  return file;
}

const HEADER_BYTES = 64;
const SEGMENT_BYTES = 56;
const SEGMENTS = 4;
const SHARED_OBJECT = 3;

function writeHeader(file: Buffer, machine: number): void {
  // 64 bits, little-endian, version 1.
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  file.writeUInt16LE(SHARED_OBJECT, 16);
  file.writeUInt16LE(machine, 18);
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(BigInt(AT.headers), 32);
  file.writeUInt16LE(HEADER_BYTES, 52);
  file.writeUInt16LE(SEGMENT_BYTES, 54);
  file.writeUInt16LE(SEGMENTS, 56);
}

interface Segment {
  readonly type: number;
  readonly flags: number;
  /** Offset in the file. */
  readonly at: number;
  /** Offset in memory from the load address. */
  readonly to: number;
  readonly bytes: number;
}

function writeSegment(file: Buffer, index: number, { type, flags, at, to, bytes }: Segment): void {
  const start = AT.headers + index * SEGMENT_BYTES;
  file.writeUInt32LE(type, start);
  file.writeUInt32LE(flags, start + 4);
  const alignment = type === SEGMENT.load ? PAGE : 8;
  for (const [place, value] of [at, to, to, bytes, bytes, alignment].entries())
    file.writeBigUInt64LE(BigInt(value), start + 8 + place * 8);
}
