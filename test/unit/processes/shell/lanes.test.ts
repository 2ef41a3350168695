import { expect, onTestFinished, test } from "vitest";
import type { Engine } from "../../../../src/engine/port.ts";
import type { Job, JobRunner } from "../../../../src/processes/shell/job.ts";
import { Lanes } from "../../../../src/processes/shell/lanes.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import { eventually } from "../../../support/eventually.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

const CROWD = 30;
const signal = new AbortController().signal;
const output = { data() {}, end() {} } as unknown as Parameters<JobRunner["start"]>[2];

/** Starts many jobs at once in one sandbox without idle lanes. */
function crowd(abort = signal) {
  const starts: (() => void)[] = [];
  const plain = {
    start: () => new Promise<Job>((resolve) => starts.push(() => resolve({} as Job))),
  } as unknown as JobRunner;
  const engine = { outside: async () => undefined, spawn: () => new Promise(() => {}) } as unknown as Engine;
  const lanes = new Lanes(engine, plain, { spare: 1, max: 16, idleMs: 60_000 }, new MemoryLog());
  onTestFinished(() => lanes.closeAll());
  const sandbox = {
    ...{ ref: "ref", sandboxId: "sbx", user: "", owner: "ann" },
    spec: { resources: { pidsLimit: 512 } },
  } as LeasedSandbox;
  lanes.open(sandbox);
  const request = {
    argv: ["true"],
    env: {},
    workingDir: "/",
    user: "other",
    stdin: false,
    terminal: undefined,
  };
  const jobs = Array.from({ length: CROWD }, () => lanes.start(sandbox, request, output, abort));
  // Jobs that a test leaves hanging fail half a minute later, during other tests.
  for (const job of jobs) job.catch(() => {});
  return { starts, jobs };
}

test("of many jobs without an idle lane, eight start at once, and all start eventually", async () => {
  const { starts, jobs } = crowd();
  expect(starts).toHaveLength(8);
  for (let done = 0; done < CROWD; done++) {
    await eventually(() => starts.length > done);
    starts[done]?.();
  }
  expect(await Promise.all(jobs)).toHaveLength(CROWD);
});

test("jobs whose start hangs delay others by at most a second", async () => {
  const { starts } = crowd();
  expect(starts).toHaveLength(8);
  await eventually(() => starts.length > 8);
});

test("a job that is aborted while it waits does not start", async () => {
  const abort = new AbortController();
  const { starts, jobs } = crowd(abort.signal);
  abort.abort(new Error("gone"));
  await expect(jobs.at(-1)).rejects.toThrow();
  expect(starts).toHaveLength(8);
});
