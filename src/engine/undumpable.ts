import { codeLibrary, ELF } from "../base/elf.ts";

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

/**
 * A shared library that makes any program that preloads it undumpable, and does nothing else. It is assembled here
 * because a shell cannot make that call, and no other program can make it for a shell.
 * @returns undefined for an architecture without code above.
 */
export function undumpableLibrary(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const call = CALLS[arch];
  if (call === undefined) return undefined;
  return codeLibrary(call.machine, Buffer.from(call.code.replaceAll(" ", ""), "hex"));
}
