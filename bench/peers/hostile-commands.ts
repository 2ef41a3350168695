import { createHash } from "node:crypto";

/** A command with its expected output. */
export interface HostileCommand {
  readonly kind: "binary" | "text";
  readonly line: string;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly exitCode: number;
}

/** Output that looks like the framing that protocols put around output. */
const DISGUISES = [
  "exit code: 0",
  "__EXIT_CODE__=0",
  "---END---",
  '{"type":"execution_complete","execution_time":1}',
  "data: [DONE]",
  "\n\n",
  "\r\n",
  "last line\n",
  "\t leading and trailing \t",
  "$ ",
  "root@sandbox:/# ",
  "\u001b[31mred\u001b[0m",
  "\u001b]0;title\u0007",
  "0\n",
  "12345\n67890\n",
  "ÄÖÜ € 漢字 🚢",
  "\u2028\u2029\u0085",
  "",
];

/** 200 commands that write random bytes and 100 that write odd text, the same in every run. */
export function hostileCommands(): HostileCommand[] {
  const binary = Array.from({ length: 200 }, (_, i) => {
    const stdout = bytes(`stdout ${i}`, (i * 37) % 900);
    const stderr = bytes(`stderr ${i}`, (i * 53) % 300);
    return command("binary", stdout, stderr, i % 128);
  });
  const text = Array.from({ length: 100 }, (_, i) => {
    const pick = (step: number): string => DISGUISES[(i * step + i) % DISGUISES.length] ?? "";
    const stdout = Buffer.from(`${pick(1)}${i % 3 === 0 ? "\n" : ""}${pick(5)}`);
    return command("text", stdout, Buffer.from(i % 2 === 0 ? pick(7) : ""), i % 5);
  });
  return [...binary, ...text];
}

/** Pseudo-random bytes from a seed. */
function bytes(seed: string, length: number): Buffer {
  const blocks = Array.from({ length: Math.ceil(length / 32) }, (_, i) =>
    createHash("sha256").update(`${seed} ${i}`).digest(),
  );
  return Buffer.concat(blocks).subarray(0, length);
}

function command(
  kind: HostileCommand["kind"],
  stdout: Buffer,
  stderr: Buffer,
  exitCode: number,
): HostileCommand {
  const octal = (data: Buffer): string =>
    [...data].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
  const line = `printf '${octal(stdout)}'; printf '${octal(stderr)}' >&2; exit ${exitCode}`;
  return { kind, line, stdout, stderr, exitCode };
}
