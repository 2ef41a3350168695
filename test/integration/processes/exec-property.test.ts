import { createHash } from "node:crypto";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { processesOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";

/** The number of commands over all shells. */
const COMMANDS = scaled(5_000, 450);
const AT_ONCE = 16;
const BLOB_BYTES = 4 * 1024 * 1024;
const MAX_OUTPUT_BYTES = 3 * 1024 * 1024;

/** Bytes that both a test and a sandbox can generate: SHA-256 in counter mode. */
const BLOB = Buffer.concat(
  Array.from({ length: BLOB_BYTES / 32 }, (_, i) => createHash("sha256").update(`blob ${i}`).digest()),
);

/** A piece of the blob. Most are small, some are as large as possible. */
const piece = fc
  .tuple(
    fc.nat(BLOB_BYTES - MAX_OUTPUT_BYTES),
    fc.oneof(
      { weight: 3, arbitrary: fc.constant(0) },
      { weight: 8, arbitrary: fc.integer({ min: 1, max: 5_000 }) },
      { weight: 4, arbitrary: fc.integer({ min: 5_000, max: 300_000 }) },
      { weight: 1, arbitrary: fc.integer({ min: 300_000, max: MAX_OUTPUT_BYTES }) },
    ),
  )
  .map(([from, length]) => ({ from, length }));

const command = fc.record({
  code: fc.nat(255),
  stdout: piece,
  stderr: piece,
  /** Undefined: no stdin. It is copied to stdout after the piece. */
  stdin: fc.oneof(
    { weight: 6, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 70_000 }) },
  ),
  /** Whether it leaves something behind that holds its pipes for a while. */
  leavesChild: fc.integer({ min: 0, max: 99 }).map((n) => n < 4),
});

const slice = ({ from, length }: { from: number; length: number }): string =>
  `tail -c +${from + 1} /tmp/blob | head -c ${length}`;

describe.each(SHELL_IMAGES)("random commands under %s", (shell, image) => {
  const service = useApp({ maxProcessesPerSandbox: 1000 });
  let sandboxId = "";

  beforeAll(async () => {
    const { sandbox_id } = await service.client.createSandbox({ image, resources: { pids_limit: 1000 } });
    sandboxId = sandbox_id;
    for (let at = 0; at < BLOB_BYTES; at += 2 * 1024 * 1024) {
      const stdin = BLOB.subarray(at, at + 2 * 1024 * 1024);
      const { exit } = await service.client.exec(sandboxId, "cat >>/tmp/blob", { stdin }).result;
      expect(exit.exit_code).toBe(0);
    }
  });

  test("every byte and every code is right, and none hangs", { timeout: 600_000 }, async () => {
    const count = Math.ceil(COMMANDS / SHELL_IMAGES.length);
    const commands = fc.sample(command, { numRuns: count, seed: 20_000 + shell.length });
    let next = 0;
    const wrong: string[] = [];
    const worker = async (): Promise<void> => {
      for (let i = next++; i < count; i = next++) {
        const wish = commands[i] as (typeof commands)[number];
        const line = [
          slice(wish.stdout),
          wish.stdin && "cat",
          `{ ${slice(wish.stderr)}; } >&2`,
          wish.leavesChild && "sleep 1 &",
          `exit ${wish.code}`,
        ]
          .filter(Boolean)
          .join("\n");
        const stdin = wish.stdin && Buffer.from(wish.stdin);
        const { stdout, stderr, gaps, exit } = await service.client.exec(
          sandboxId,
          line,
          stdin ? { stdin } : {},
        ).result;
        const wanted = {
          stdout: Buffer.concat([
            BLOB.subarray(wish.stdout.from, wish.stdout.from + wish.stdout.length),
            stdin ?? Buffer.alloc(0),
          ]),
          stderr: BLOB.subarray(wish.stderr.from, wish.stderr.from + wish.stderr.length),
        };
        const right =
          stdout.equals(wanted.stdout) &&
          stderr.equals(wanted.stderr) &&
          gaps.length === 0 &&
          exit.exit_code === wish.code &&
          Number(exit.stdout_bytes) === stdout.length &&
          Number(exit.stderr_bytes) === stderr.length;
        if (!right) {
          wrong.push(
            `${i}: code ${exit.exit_code} for ${wish.code} (${exit.cause}), stdout ${stdout.length} for ${wanted.stdout.length}, stderr ${stderr.length} for ${wanted.stderr.length}`,
          );
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    expect(wrong).toEqual([]);
    expect(next).toBeGreaterThanOrEqual(count);
    // Once the children are gone, only the sandbox's first processes and idle shells are left.
    await eventually(async () =>
      (await processesOf(service.instance, sandboxId)).every((args) => !/sleep|tail|head|cat/.test(args)),
    );
  });
});
