import { expect, test } from "vitest";
import { SecretRunner } from "../../../src/processes/secret-runner.ts";
import type { Job, JobRequest, JobRunner } from "../../../src/processes/shell/job.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";

const COUNT = 64;
const MIB = 2 ** 20;
const sandbox = { owner: "me" } as LeasedSandbox;

/** The largest secrets that a command may have: 4 MiB, in lines as keys are. */
function largest(): string[] {
  return Array.from({ length: COUNT }, (_, index) => `${index}${"0123456789abcde\n".repeat(4095)}`);
}

/** Starts a command with the largest secrets. Returns how often the event loop turned before it started. */
async function turnsUntilStarted(more: Partial<JobRequest>): Promise<{ turns: number; bytes: number }> {
  const values = largest();
  const secretEnv = Object.fromEntries(values.map((_, index) => [`S${index}`, `secret-${index}`]));
  const before = process.memoryUsage().arrayBuffers;
  let turns = 0;
  let bytes = 0;
  let started = false;
  const turn = (): void => {
    if (started) return;
    turns++;
    setImmediate(turn);
  };
  const runner: JobRunner = {
    start: async (_, { env }) => {
      started = true;
      bytes = process.memoryUsage().arrayBuffers - before;
      expect(Object.values(env)).toEqual(values);
      return { end: new Promise(() => {}) } as unknown as Job;
    },
  };
  setImmediate(turn);
  const request = { argv: ["true"], env: {}, secretEnv, workingDir: "/", user: "", stdin: false };
  await new SecretRunner(runner, { resolve: async () => values }).start(
    sandbox,
    { ...request, terminal: undefined, ...more },
    () => {},
    new AbortController().signal,
  );
  return { turns, bytes };
}

test("secrets that are not redacted cost no memory", async () => {
  const { bytes } = await turnsUntilStarted({ redactSecrets: false });
  expect(bytes).toBeLessThan(MIB);
});

test("the most and largest secrets are redacted without blocking the event loop, in little memory", async () => {
  const { turns, bytes } = await turnsUntilStarted({ redactSecrets: true });
  expect(turns).toBeGreaterThan(2);
  expect(bytes).toBeLessThan(128 * MIB);
});
