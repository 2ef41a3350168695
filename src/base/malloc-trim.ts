import { DYNAMIC, ELF, LIBRARY_DATA, LIBRARY_START, SYMBOL_BYTES, sharedLibrary } from "./elf.ts";
import { LibraryFile } from "./library-file.ts";

interface Machine {
  readonly number: number;
  /** The kind of relocation that stores the address of a symbol in 8 bytes. */
  readonly address: number;
}

const MACHINES: Partial<Record<NodeJS.Architecture, Machine>> = {
  // R_X86_64_64
  x64: { number: ELF.machine.x64, address: 1 },
  // R_AARCH64_ABS64
  arm64: { number: ELF.machine.arm64, address: 257 },
};

const STRINGS = Buffer.from("\0malloc_trim\0");
/** A symbol that is defined elsewhere: bound globally, a function. */
const EXTERNAL_FUNCTION = 0x12;
const RELOCATION_BYTES = 24;

/**
 * A shared library without code whose only initializer is glibc's `malloc_trim`. Loading it calls that function.
 * @returns undefined for an architecture without relocation above.
 */
function trimLibrary(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const machine = MACHINES[arch];
  if (machine === undefined) return undefined;
  // Two symbols, the first of which is empty.
  const symbols = Buffer.alloc(2 * SYMBOL_BYTES);
  symbols.writeUInt32LE(1, SYMBOL_BYTES);
  symbols.writeUInt8(EXTERNAL_FUNCTION, SYMBOL_BYTES + 4);
  // One bucket, which is empty: nothing is defined here.
  const hash = Buffer.alloc(24);
  hash.writeUInt32LE(1, 0);
  hash.writeUInt32LE(2, 4);
  const relocation = Buffer.alloc(RELOCATION_BYTES);
  relocation.writeBigUInt64LE(BigInt(LIBRARY_DATA), 0);
  relocation.writeBigUInt64LE((1n << 32n) | BigInt(machine.address), 8);
  const hashAt = LIBRARY_START + symbols.length;
  const relocationAt = hashAt + hash.length;
  return sharedLibrary(machine.number, Buffer.concat([symbols, hash, relocation, STRINGS]), false, [
    [DYNAMIC.hash, hashAt],
    [DYNAMIC.strings, relocationAt + RELOCATION_BYTES],
    [DYNAMIC.symbols, LIBRARY_START],
    [DYNAMIC.stringsBytes, STRINGS.length],
    [DYNAMIC.symbolBytes, SYMBOL_BYTES],
    [DYNAMIC.relocations, relocationAt],
    [DYNAMIC.relocationsBytes, RELOCATION_BYTES],
    [DYNAMIC.relocationBytes, RELOCATION_BYTES],
    [DYNAMIC.initArray, LIBRARY_DATA],
    [DYNAMIC.initArrayBytes, 8],
  ]);
}

/**
 * Returns a function that returns the C library's free memory to the system. Node cannot call `malloc_trim`, but can
 * load a library that does. With another C library than glibc the function does nothing.
 */
export function mallocTrimmer(): () => void {
  const library = trimLibrary();
  const file = library && LibraryFile.create(library);
  return () => file?.run();
}
