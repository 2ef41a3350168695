import { describe, expect, test } from "vitest";
import { findFilter, type SystemCallFilter } from "../../../../src/engine/bubblewrap/filter.ts";

/** The data that a filter decides on: `struct seccomp_data`. */
function callData(machine: number, number: number, args: readonly bigint[]): Buffer {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(machine, 4);
  for (const [index, arg] of args.entries()) data.writeBigUInt64LE(arg, 16 + index * 8);
  return data;
}

/** Interprets the instructions that libseccomp uses: https://docs.kernel.org/networking/filter.html. Returns the action. */
function decide(program: Buffer, data: Buffer): number {
  let accumulator = 0;
  for (let at = 0; at < program.length; at += 8) {
    const [yes = 0, no = 0] = program.subarray(at + 2, at + 4);
    const value = program.readUInt32LE(at + 4);
    const code = program.readUInt16LE(at);
    const jump = (condition: boolean) => (at += (condition ? yes : no) * 8);
    switch (code) {
      case 0x20:
        accumulator = data.readUInt32LE(value);
        break;
      case 0x54:
        accumulator = (accumulator & value) >>> 0;
        break;
      case 0x05:
        at += value * 8;
        break;
      case 0x15:
        jump(accumulator === value);
        break;
      case 0x25:
        jump(accumulator > value);
        break;
      case 0x35:
        jump(accumulator >= value);
        break;
      case 0x06:
        return value;
      default:
        throw new Error(`instruction ${code} at ${at}`);
    }
  }
  throw new Error("it does not decide");
}

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const ENOSYS = 0x00050026;
const SIGCHLD = 17n;
const NEW_USER = 0x10000000n;
const X86_64 = 0xc000003e;
const AARCH64 = 0xc00000b7;

/** Numbers of system calls on x86-64 and arm64. */
const CALLS = {
  read: [0, 63],
  openat: [257, 56],
  execve: [59, 221],
  fchmodat2: [452, 452],
  ptrace: [101, 117],
  keyctl: [250, 219],
  bpf: [321, 280],
  mount: [165, 40],
  unshare: [272, 97],
  setns: [308, 268],
  io_uring_setup: [425, 425],
  userfaultfd: [323, 282],
  perf_event_open: [298, 241],
  clone3: [435, 435],
  clone: [56, 220],
  socket: [41, 198],
  personality: [135, 92],
} as const;

describe.each([
  ["x64", X86_64, AARCH64, 0],
  ["arm64", AARCH64, X86_64, 1],
] as const)("on %s", (arch, machine, other, column) => {
  const { program, entry } = findFilter(arch, "6.1.0") as SystemCallFilter;
  const of = (name: keyof typeof CALLS, ...args: bigint[]) =>
    decide(program, callData(machine, CALLS[name][column], args));

  test.each(["read", "openat", "execve", "fchmodat2", "ptrace"] as const)("%s is allowed", (name) => {
    expect(of(name)).toBe(ALLOW);
  });

  test.each([
    ...(["keyctl", "bpf", "mount", "unshare", "setns", "io_uring_setup"] as const),
    ...(["userfaultfd", "perf_event_open"] as const),
  ])("%s is refused", (name) => {
    expect(of(name)).toBe(EPERM);
  });

  test("arguments are checked where they matter", () => {
    expect(of("clone", SIGCHLD)).toBe(ALLOW);
    expect(of("clone", NEW_USER | SIGCHLD)).toBe(EPERM);
    // The flags of clone3 are in memory, where the filter cannot see them. Programs then use clone.
    expect(of("clone3")).toBe(ENOSYS);
    const [unix, alg, vsock] = [1n, 38n, 40n];
    expect([of("socket", unix), of("socket", alg), of("socket", vsock)]).toEqual([ALLOW, EPERM, EPERM]);
    expect([of("personality", 0n), of("personality", 0x40000n)]).toEqual([ALLOW, EPERM]);
  });

  test("calls that are newer than the filter fail as if they did not exist", () => {
    expect(decide(program, callData(machine, 1000, []))).toBe(ENOSYS);
  });

  test("a process for another architecture is killed", () => {
    expect(decide(program, callData(other, CALLS.read[1 - column] ?? 0, []))).toBe(KILL);
    const i386 = 0x40000003;
    expect(decide(program, callData(i386, 3, []))).toBe(KILL);
  });

  test("every call gets a decision", () => {
    for (let number = 0; number < 600; number++) {
      expect([ALLOW, EPERM, ENOSYS]).toContain(decide(program, callData(machine, number, [])));
    }
  });

  test("the executable contains the filter program", () => {
    const header = entry.length - program.length - 16;
    expect(entry.readUInt16LE(header)).toBe(program.length / 8);
    expect(Number(entry.readBigUInt64LE(header + 8))).toBe(0x400000 + header + 16);
    expect(entry.subarray(header + 16)).toEqual(program);
  });
});

test("if there is none, it says why", () => {
  expect(findFilter("riscv64", "6.1.0")).toBe("there is no filter for the processor riscv64");
  expect(findFilter("x64", "5.7.19")).toBe("it needs Linux 5.8, and this is 5.7.19");
  expect(findFilter("x64", "5.8.0-rc1")).not.toBeTypeOf("string");
});
