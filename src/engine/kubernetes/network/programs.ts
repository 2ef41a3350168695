import { addressBytes } from "../../../base/cidr.ts";
import { ELF, machineCode, staticExecutable } from "../../../base/elf.ts";

/*
 * Programs that connect and listen, for pods of any image, where only a shell is certain to exist. Each reads a socket
 * address, in the kernel's binary form, from its stdin.
 */

interface Machine {
  readonly number: number;
  readonly connect: string;
  readonly listen: string;
}

const MACHINES: readonly Machine[] = [
  {
    number: ELF.machine.x64,
    connect: `
      4883ec40                                              64 bytes at rsp
      31ff 4889e6 ba1c000000 31c0 0f05 4189c4               r12d = read(0, rsp, 28)
      0fb73c24 be01000000 31d2 b829000000 0f05 89c3         ebx = socket(family, SOCK_STREAM, 0)
      48c744242002000000 48c744242800000000                 2 s at rsp + 32
      89df be01000000 ba15000000 4c8d542420 41b810000000    setsockopt(ebx, SOL_SOCKET, SO_SNDTIMEO, rsp + 32, 16)
      b836000000 0f05
      89df 4889e6 4489e2 b82a000000 0f05                    eax = connect(ebx, rsp, r12d)
      f7d8 89c7 b8e7000000 0f05                             exit_group(-eax)`,
    listen: `
      4883ec40                                              64 bytes at rsp
      31ff 4889e6 ba1c000000 31c0 0f05 4189c4               r12d = read(0, rsp, 28)
      0fb73c24 be01000000 31d2 b829000000 0f05 89c3         ebx = socket(family, SOCK_STREAM, 0)
      89df 4889e6 4489e2 b831000000 0f05 85c0 752a          bind(ebx, rsp, r12d), or fail
      89df be10000000 b832000000 0f05 85c0 7518             listen(ebx, 16), or fail
      89df 31f6 31d2 b82b000000 0f05                        for ever: accept(ebx, 0, 0)
      89c7 b803000000 0f05 ebe8                               close(eax)
      f7d8 89c7 b8e7000000 0f05                             fail: exit_group(-eax)`,
  },
  {
    number: ELF.machine.arm64,
    connect: `
      ff0301d1                                              64 bytes at sp
      000080d2 e1030091 820380d2 e80780d2 010000d4          x20 = read(0, sp, 28)
      f40300aa
      e0034079 210080d2 020080d2 c81880d2 010000d4          x19 = socket(family, SOCK_STREAM, 0)
      f30300aa
      430080d2 e31300f9 ff1700f9                            2 s at sp + 32
      210080d2 a20280d2 e3830091 040280d2 081a80d2          setsockopt(x0, SOL_SOCKET, SO_SNDTIMEO, sp + 32, 16)
      010000d4
      e00313aa e1030091 e20314aa 681980d2 010000d4          x0 = connect(x19, sp, x20)
      e00300cb c80b80d2 010000d4                            exit_group(-x0)`,
    listen: `
      ff0301d1                                              64 bytes at sp
      000080d2 e1030091 820380d2 e80780d2 010000d4          x20 = read(0, sp, 28)
      f40300aa
      e0034079 210080d2 020080d2 c81880d2 010000d4          x19 = socket(family, SOCK_STREAM, 0)
      f30300aa
      e1030091 e20314aa 081980d2 010000d4 c00100b5          bind(x0, sp, x20), or fail
      e00313aa 010280d2 281980d2 010000d4 200100b5          listen(x19, 16), or fail
      e00313aa 010080d2 020080d2 481980d2 010000d4          for ever: accept(x19, 0, 0)
      280780d2 010000d4 f9ffff17                              close(x0)
      e00300cb c80b80d2 010000d4                            fail: exit_group(-x0)`,
  },
];

/** Linux's error numbers of a connect that something on the way refuses or drops. */
const BLOCKED = new Set([
  /* EPERM */ 1, /* EACCES */ 13, 101, 110, 111, /* SO_SNDTIMEO */ 115, /* EHOSTUNREACH */ 113,
]);

/** An address and port to connect to. */
export interface Place {
  readonly address: string;
  readonly port: number;
}

/** The outcome of an attempt to connect. `failed`: it says nothing about the network. */
export type Attempt = "connected" | "blocked" | "failed";

/**
 * A shell script that writes the programs `connect` and `listen` into a directory, and listens on a port of all
 * addresses.
 */
export function listenScript(dir: string, port: number): string {
  const programs = MACHINES.map(
    ({ number, connect, listen }) =>
      `w ${dir}/connect '${octal(staticExecutable(number, machineCode(connect)))}'; ` +
      `w ${dir}/listen '${octal(staticExecutable(number, machineCode(listen)))}'; l`,
  );
  const all = ["::", "0.0.0.0"].map(
    (address) => `printf '${octal(socketAddress({ address, port }))}' | ${dir}/listen`,
  );
  // The shell cannot run a program for another processor; then this tries the next.
  return `w() { printf "$2" >"$1" && chmod 755 "$1"; }
l() { ${all.join(" || ")}; } 2>/dev/null
${programs.join("\n")}
exit 1
`;
}

/** A shell script that connects to all places at once. {@link readAttempts} parses its output. */
export function connectScript(dir: string, places: readonly Place[]): string {
  const each = places.map(
    (place, at) => `{ printf '${octal(socketAddress(place))}' | ${dir}/connect; echo "${at} $?"; } &`,
  );
  return `${each.join("\n")}\nwait\n`;
}

/** Parses the output of {@link connectScript}. */
export function readAttempts(printed: string, places: readonly Place[]): Attempt[] {
  const codes = new Map(
    printed
      .split("\n")
      .map((line) => line.split(" "))
      .map(([at, code]) => [Number(at || Number.NaN), Number(code)]),
  );
  return places.map((_place, at) => {
    const code = codes.get(at);
    if (code === undefined || Number.isNaN(code)) return "failed";
    return code === 0 ? "connected" : BLOCKED.has(code) ? "blocked" : "failed";
  });
}

/** A socket address in the kernel's form, for little-endian machines. */
function socketAddress({ address, port }: Place): Buffer {
  const bytes = addressBytes(address);
  const isIPv4 = bytes.length === 4;
  const head = Buffer.alloc(isIPv4 ? 4 : 8);
  head.writeUInt16LE(isIPv4 ? 2 : 10, 0);
  head.writeUInt16BE(port, 2);
  return Buffer.concat([head, bytes, Buffer.alloc(isIPv4 ? 8 : 4)]);
}

function octal(bytes: Buffer): string {
  return bytes.reduce((text, byte) => `${text}\\${byte.toString(8).padStart(3, "0")}`, "");
}
