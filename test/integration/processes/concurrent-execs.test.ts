import { expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { seededRandom } from "../../support/random.ts";
import { scaled } from "../../support/scale.ts";

const ROUNDS = scaled(20, 3);
const AT_ONCE = 32;
const MAX_BYTES = 2_000_000;

const app = useApp();

test("32 commands at once each get their own bytes and their own exit code, time and again", {
  timeout: 180_000,
}, async () => {
  const { sandbox_id: sandboxId } = await app.client.createSandbox({ resources: { cpu_millis: 2000 } });
  const random = seededRandom(7);
  for (let round = 0; round < ROUNDS; round++) {
    const jobs = Array.from({ length: AT_ONCE }, (_, index) => newJob(`${round}/${index}`, index, random));
    const results = await Promise.all(jobs.map(({ line }) => app.client.exec(sandboxId, line).result));
    results.forEach(({ stdout, stderr, exit, gaps }, index) => {
      const job = jobs[index] as Job;
      // Compared as booleans: a diff of two megabytes would help nobody.
      expect({
        line: job.line,
        stdout: stdout.equals(job.stdout),
        stderr: stderr.equals(job.stderr),
      }).toEqual({
        line: job.line,
        stdout: true,
        stderr: true,
      });
      expect(gaps).toEqual([]);
      expect(exit).toMatchObject({
        cause: "EXIT_CAUSE_EXITED",
        exit_code: job.exitCode,
        stdout_bytes: job.stdout.length,
        stderr_bytes: job.stderr.length,
      });
    });
  }
  const { active_operations: active } = await app.client.getSandbox(sandboxId);
  expect(active).toBe(0);
});

interface Job {
  readonly line: string;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly exitCode: number;
}

function newJob(name: string, index: number, random: () => number): Job {
  const stdout = Buffer.alloc(sizeOf(index, random), `${name} to stdout\n`);
  const stderr = Buffer.alloc(sizeOf(index + 1, random), `${name} to stderr\n`);
  const exitCode = Math.floor(random() * 126);
  const write = (text: string, bytes: number): string => `yes '${name} to ${text}' | head -c ${bytes}`;
  // Both streams at the same time.
  const line = `${write("stderr", stderr.length)} >&2 & ${write("stdout", stdout.length)}; wait; exit ${exitCode}`;
  return { line, stdout, stderr, exitCode };
}

/** Each round has the extreme sizes. In between, small outputs are the most frequent. */
function sizeOf(index: number, random: () => number): number {
  if (index === 0) return 0;
  if (index === 1) return MAX_BYTES;
  return Math.floor(MAX_BYTES * random() ** 8);
}
