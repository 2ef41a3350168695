import { ELF, PAGE, writeHeader, writeSegment } from "./elf.ts";

/**
 * Machine code of `prctl(PR_SET_DUMPABLE, 0)`, which closes a program's memory
 * and descriptors to other processes of its user.
 */
const CALLS: Partial<Record<NodeJS.Architecture, { readonly machine: number; readonly code: string }>> = {
  // endbr64; mov eax, 157; mov edi, 4; xor esi, esi; syscall; ret
  x64: { machine: ELF.machine.x64, code: "f30f1efa b89d000000 bf04000000 31f6 0f05 c3" },
  // mov x8, #167; mov x0, #4; mov x1, #0; svc #0; ret
  arm64: { machine: ELF.machine.arm64, code: "e81480d2 800080d2 010080d2 010000d4 c0035fd6" },
};

/** Offsets in the file. The dynamic table is on a separate page because some loaders write to it. */
const AT = { headers: 64, hash: 0x120, symbols: 0x130, strings: 0x148, code: 0x150, dynamic: 0x180 };
const SYMBOL_BYTES = 24;
const ENTRY_BYTES = 16;
/** Kinds of entries of the dynamic table. */
const DYNAMIC = { hash: 4, strings: 5, symbols: 6, stringsBytes: 10, symbolBytes: 11, init: 12 };

/**
 * A shared library that makes any program that preloads it undumpable, and does nothing else. It is assembled here
 * because a shell cannot make that call, and no other program can make it for a shell. It depends on no other library,
 * so it works with every loader.
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
  writeHeader(file, { type: ELF.type.sharedObject, machine: call.machine, segments: 4 });
  const { segment, flag } = ELF;
  writeSegment(file, 0, {
    type: segment.load,
    flags: flag.read | flag.execute,
    at: 0,
    to: 0,
    bytes: AT.dynamic,
  });
  const writable = {
    flags: flag.read | flag.write,
    at: AT.dynamic,
    to: PAGE + AT.dynamic,
    bytes: tableBytes,
  };
  writeSegment(file, 1, { type: segment.load, ...writable });
  writeSegment(file, 2, { type: segment.dynamic, ...writable });
  writeSegment(file, 3, { type: segment.stack, flags: flag.read | flag.write, at: 0, to: 0, bytes: 0 });
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
