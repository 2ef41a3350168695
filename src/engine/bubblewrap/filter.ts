import { release } from "node:os";
import { ELF, machineCode, staticExecutable } from "../../base/elf.ts";
import { FILTER_PROGRAMS } from "./filter-programs.ts";

/** Docker's default filter of system calls, for a process to load. */
export interface SystemCallFilter {
  /** For `bwrap --seccomp`. */
  readonly program: Buffer;
  /**
   * A static executable that moves its caller into the sandbox of process 1 of its pid namespace, and there executes
   * its first argument with the remaining arguments. On the way it drops every capability from the bounding set and
   * loads the filter. The caller needs all rights over the sandbox's namespaces, and the inner user namespace must be a
   * child of the caller's. It exits with {@link ENTRY_FAILED} on failure.
   */
  readonly entry: Buffer;
}

/** The exit code of {@link SystemCallFilter.entry} if it cannot enter the sandbox. */
export const ENTRY_FAILED = 125;

/** The first Linux with a `setns` that enters all namespaces of a process at once. */
const MIN_KERNEL = [5, 8] as const;

/** The filter for this machine. @returns text that says what is missing, if there is none. */
export function findFilter(
  arch: NodeJS.Architecture = process.arch,
  kernel = release(),
): SystemCallFilter | string {
  const encoded = FILTER_PROGRAMS[arch];
  const machine = MACHINES[arch];
  if (encoded === undefined || machine === undefined) return `there is no filter for the processor ${arch}`;
  const [major = 0, minor = 0] = kernel.split(".").map(Number);
  if (major < MIN_KERNEL[0] || (major === MIN_KERNEL[0] && minor < MIN_KERNEL[1])) {
    return `it needs Linux ${MIN_KERNEL.join(".")}, and this is ${kernel}`;
  }
  const program = Buffer.from(encoded, "base64");
  return { program, entry: entryExecutable(machine, program) };
}

interface Machine {
  readonly number: number;
  /** The bytes of its instructions. The code expects the `struct sock_fprog` right after it. */
  readonly code: string;
}

// Flags of setns: 0x4e020000 is the mount, cgroup, UTS, IPC and network namespaces, 0x10000000 the user namespace. The
// user namespace comes last, because entering it removes the rights over the others. In it, the process has every
// capability until it executes the program, so nothing in the sandbox, which has none, can take it over before the
// filter is loaded.
const MACHINES: Partial<Record<NodeJS.Architecture, Machine>> = {
  x64: {
    number: ELF.machine.x64,
    code: `
      b8b2010000 bf01000000 31f6 0f05              pidfd_open(1, 0)
      89c3                                         ebx = descriptor
      89df be0000024e b834010000 0f05 85c0 757f    setns(ebx, 0x4e020000), or fail
      89df be00000010 b834010000 0f05 85c0 756d    setns(ebx, 0x10000000), or fail
      b870000000 0f05                              setsid()
      bb3f000000                                   ebx = 63
      bf18000000 89de 31d2 4531d2 4531c0           drop: prctl(PR_CAPBSET_DROP, ebx, 0, 0, 0)
      b89d000000 0f05
      ffcb 79e6                                    until --ebx < 0
      bf26000000 be01000000 b89d000000 0f05        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
      bf16000000 be02000000 488d1534000000         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog),
      b89d000000 0f05 85c0 751a                    or fail
      488b7c2410 488d742410 488b0424 488d54c410    execve(argv[1], &argv[1], envp)
      b83b000000 0f05
      bf7d000000 b8e7000000 0f05                   fail: exit_group(125)
      0f1f00                                       padding to 8 bytes`,
  },
  arm64: {
    number: ELF.machine.arm64,
    code: `
      200080d2 010080d2 483680d2 010000d4          pidfd_open(1, 0)
      f30300aa                                     x19 = descriptor
      01008052 41c0a972 882180d2 010000d4          setns(x19, 0x4e020000)
      400400b5                                     or fail
      e00313aa 0100a252 882180d2 010000d4          setns(x19, 0x10000000)
      a00300b5                                     or fail
      a81380d2 010000d4                            setsid()
      f30780d2                                     x19 = 63
      000380d2 e10313aa 020080d2 030080d2          drop: prctl(PR_CAPBSET_DROP, x19, 0, 0, 0)
      040080d2 e81480d2 010000d4
      730600f1 05ffff54                            until --x19 < 0
      c00480d2 210080d2 e81480d2 010000d4          prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
      c00280d2 410080d2 a2010010 e81480d2          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog)
      010000d4 e00000b5                            or fail
      e30340f9 e00b40f9 e1430091 220c038b          execve(argv[1], &argv[1], envp)
      a81b80d2 010000d4
      a00f80d2 c80b80d2 010000d4                   fail: exit_group(125)`,
  },
};

/** Size of a `struct sock_filter`. */
const INSTRUCTION_BYTES = 8;
/** Size of a `struct sock_fprog`: the number of instructions, and their address. */
const FPROG_BYTES = 16;

function entryExecutable({ number, code }: Machine, program: Buffer): Buffer {
  return staticExecutable(number, machineCode(code), (address) => {
    const fprog = Buffer.alloc(FPROG_BYTES);
    fprog.writeUInt16LE(program.length / INSTRUCTION_BYTES, 0);
    fprog.writeBigUInt64LE(BigInt(address + FPROG_BYTES), 8);
    return Buffer.concat([fprog, program]);
  });
}
