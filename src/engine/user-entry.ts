import { ELF, machineCode, staticExecutable } from "../base/elf.ts";

interface Machine {
  readonly number: number;
  readonly code: string;
}

const MACHINES: Partial<Record<NodeJS.Architecture, Machine>> = {
  x64: {
    number: ELF.machine.x64,
    code: `
      4889e5                                          rbp = &argc
      b870000000 0f05                                 setsid()
      4881ec00020000                                  512 bytes of zeros at rsp
      31c0 4889e7 b940000000 f348ab
      bb40000000                                      ebx = 64
      89df 4889e6 31d2 41ba08000000 b80d000000 0f05   signal: rt_sigaction(ebx, {SIG_DFL}, 0, 8)
      ffcb 75e8                                       until --ebx == 0
      bf02000000 4889e6 31d2 41ba08000000             rt_sigprocmask(SIG_SETMASK, {}, 0, 8)
      b80e000000 0f05
      bf03000000 beffffffff 31d2 b8b4010000 0f05      close_range(3, ~0, 0)
      c68424f00100002f 488dbc24f0010000               chdir("/")
      b850000000 0f05
      31db 488b7520                                   ebx = 0, rsi = argv[3]
      803e30 721a                                     group: while *rsi >= '0':
      83fb40 7472                                       ebx < 64, or fail
      e879000000 89449c20 ffc3                          groups[ebx++] = number(rsi)
      803e2c 7505 48ffc6 ebe1                           until *rsi++ != ','
      89df 488d742420 b874000000 0f05 85c0 754b       setgroups(ebx, groups), or fail
      488b7518 e84e000000                             eax = number(argv[2])
      89c7 89c6 89c2 b877000000 0f05 85c0 7531        setresgid(eax, eax, eax), or fail
      488b7510 e834000000                             eax = number(argv[1])
      89c7 89c6 89c2 b875000000 0f05 85c0 7517        setresuid(eax, eax, eax), or fail
      488d7528 488b3e 488b4d00 488d54cd10             execve(argv[4], &argv[4], envp)
      b83b000000 0f05
      bf7d000000 b8e7000000 0f05                      fail: exit_group(125)
      31c0                                            number: eax = 0
      0fb60e 83e930 83f909 770a                       while '0' <= *rsi <= '9':
      6bc00a 01c8 48ffc6 ebeb                           eax = eax * 10 + *rsi++ - '0'
      c3                                              return`,
  },
  arm64: {
    number: ELF.machine.arm64,
    code: `
      f4030091                                        x20 = &argc
      a81380d2 010000d4                               setsid()
      ff0308d1                                        512 bytes of zeros at sp
      e1030091 020880d2 3f8400f8 420400f1 c1ffff54
      130880d2                                        x19 = 64
      e00313aa e1030091 020080d2 030180d2             signal: rt_sigaction(x19, {SIG_DFL}, 0, 8)
      c81080d2 010000d4
      730600f1 21ffff54                               until --x19 == 0
      400080d2 e1030091 020080d2 030180d2             rt_sigprocmask(SIG_SETMASK, {}, 0, 8)
      e81080d2 010000d4
      600080d2 01008012 020080d2 883680d2 010000d4    close_range(3, ~0, 0)
      e0058052 e0f301b9 e0c30791 280680d2 010000d4    chdir("/")
      130080d2 811240f9 f5830091                      x19 = 0, x1 = argv[3]
      23004039 7fc00071 63010054                      group: while *x1 >= '0':
      7f0201f1 60040054                                 x19 < 64, or fail
      25000094 a07a33b8 73060091                        groups[x19++] = number(x1)
      23004039 7fb00071 61000054 21040091 f4ffff17      until *x1++ != ','
      e00313aa e10315aa e81380d2 010000d4 c00200b5    setgroups(x19, groups), or fail
      810e40f9 17000094                               w0 = number(argv[2])
      e103002a e203002a a81280d2 010000d4 e00100b5    setresgid(w0, w0, w0), or fail
      810a40f9 10000094                               w0 = number(argv[1])
      e103002a e203002a 681280d2 010000d4 000100b5    setresuid(w0, w0, w0), or fail
      81a20091 200040f9 830240f9 820e038b 42400091    execve(argv[4], &argv[4], envp)
      a81b80d2 010000d4
      a00f80d2 c80b80d2 010000d4                      fail: exit_group(125)
      00008052 45018052                               number: w0 = 0
      23004039 63c00051 7f240071 88000054             while '0' <= *x1 <= '9':
      000c051b 21040091 faffff17                        w0 = w0 * 10 + *x1++ - '0'
      c0035fd6                                        return`,
  },
};

/**
 * A static executable that starts a program the way an exec of the daemon does: in a new session, with default signal
 * handling, without other file descriptors, in `/`, as a given user. A shell can do none of this, and an image may lack
 * any program that could. Its arguments are the uid, the gid, the supplementary gids (decimal, separated by commas, or
 * empty; at most 64), the program's path and its arguments. It exits with 125 if it fails.
 * @returns undefined for an architecture without code above.
 */
export function userEntry(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const machine = MACHINES[arch];
  return machine && staticExecutable(machine.number, machineCode(machine.code));
}
