import { CODE_START, codeLibrary, ELF, machineCode } from "./elf.ts";
import { LibraryFile } from "./library-file.ts";

/** What follows the code below. */
const NUMBERS_AT = 64;
const NUMBERS_START = CODE_START + NUMBERS_AT;
const NUMBERS_BYTES = 16;
const RESULT_START = NUMBERS_START + NUMBERS_BYTES;
const RESULT_BYTES = 8;
/** What the code replaces by the result of its call. */
const NOT_RUN = -1n;

/**
 * Machine code of `fcntl(pipe, F_SETPIPE_SZ, bytes)`, which writes the result into the library's own file. The numbers
 * that follow it are the pipe, the bytes, the descriptor of the file, and the place in it.
 */
const CODE: Partial<Record<NodeJS.Architecture, { readonly machine: number; readonly code: string }>> = {
  x64: {
    machine: ELF.machine.x64,
    code: `
      f30f1efa            endbr64
      8b3d36000000        mov edi, [rip + 54]   the pipe
      be07040000          mov esi, 1031         F_SETPIPE_SZ
      8b152f000000        mov edx, [rip + 47]   the bytes
      b848000000          mov eax, 72           fcntl
      0f05                syscall
      50                  push rax
      4889e6              mov rsi, rsp
      8b3d22000000        mov edi, [rip + 34]   the file
      ba08000000          mov edx, 8
      448b151a000000      mov r10d, [rip + 26]  the place
      b812000000          mov eax, 18           pwrite64
      0f05                syscall
      58                  pop rax
      c3                  ret`,
  },
  arm64: {
    machine: ELF.machine.arm64,
    code: `
      00020018            ldr w0, #64           the pipe
      e1808052            mov w1, #1031         F_SETPIPE_SZ
      e2010018            ldr w2, #60           the bytes
      280380d2            mov x8, #25           fcntl
      010000d4            svc #0
      e00f1ff8            str x0, [sp, #-16]!
      80010018            ldr w0, #48           the file
      e1030091            mov x1, sp
      020180d2            mov x2, #8
      43010018            ldr w3, #40           the place
      880880d2            mov x8, #68           pwrite64
      010000d4            svc #0
      ff430091            add sp, sp, #16
      c0035fd6            ret`,
  },
};

/** The library above; undefined for an architecture without code. */
export function capacityLibrary(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const call = CODE[arch];
  if (call === undefined) return undefined;
  const code = Buffer.alloc(NUMBERS_AT + NUMBERS_BYTES + RESULT_BYTES);
  machineCode(call.code).copy(code);
  return codeLibrary(call.machine, code);
}

/**
 * Sets how many bytes a pipe holds, which the kernel rounds up to a power of two, and returns whether it did. It refuses
 * less than what is in the pipe, and limits the pages of all pipes of a user (pipe(7)).
 */
export type SetCapacity = (fd: number, bytes: number) => boolean;

/** Undefined where no library can be loaded for it. */
export function pipeCapacitySetter(): SetCapacity | undefined {
  const library = capacityLibrary();
  const file = library && LibraryFile.create(library);
  if (file === undefined) return undefined;
  const numbers = Buffer.alloc(NUMBERS_BYTES + RESULT_BYTES);
  const result = Buffer.alloc(RESULT_BYTES);
  return (fd, bytes) => {
    numbers.writeInt32LE(fd, 0);
    numbers.writeUInt32LE(bytes, 4);
    numbers.writeInt32LE(file.descriptor, 8);
    numbers.writeUInt32LE(RESULT_START, 12);
    numbers.writeBigInt64LE(NOT_RUN, NUMBERS_BYTES);
    file.write(numbers, NUMBERS_START);
    file.run();
    file.read(result, RESULT_START);
    return result.readBigInt64LE() >= BigInt(bytes);
  };
}
