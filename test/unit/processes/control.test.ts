import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { ProcessControl, type Shells } from "../../../src/processes/control.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";

test("a tree that is not visible from outside is ended from inside, even with a fraction of a millisecond of grace", async () => {
  const given: string[] = [];
  const shells: Shells = { ask: (_sandbox, _user, probe) => probe(async () => "y") };
  const control = new ProcessControl({
    shells,
    engine: { outside: async () => undefined },
    giveUp: (_sandbox, why) => given.push(why) > 0,
  });
  // The rest of a grace is rarely a whole number of milliseconds.
  const job = { pid: 7, startTime: "1", unsure: false, end: Promise.resolve() };
  const ending = control.killTree({ ref: "any" } as LeasedSandbox, "", job as never, 1999.5445690006);
  await expect(ending).resolves.toBeUndefined();
  expect(given).toEqual([]);
});

test("a sandbox is not given up because shells are slow to start after a restart of the service", async () => {
  const given: string[] = [];
  const control = new ProcessControl({
    shells: {
      ask: async (_sandbox, _user, probe, within) => {
        await sleep(3_500, undefined, { signal: within });
        return probe(async () => "y");
      },
    },
    engine: { outside: async () => undefined },
    giveUp: (_sandbox, why) => given.push(why) > 0,
  });
  // A job of an earlier run.
  const job = { pid: 7, startTime: "1", unsure: true, end: Promise.resolve() };
  await control.killTree({ ref: "any" } as LeasedSandbox, "", job as never, 0).catch(() => {});
  expect(given).toEqual([]);
});

test("OOM kills are counted even if the sandbox's shells take a while to answer", async () => {
  let answersAfterMs = 1_500;
  const control = new ProcessControl({
    shells: {
      ask: async (_sandbox, _user, probe, within) => {
        await sleep(answersAfterMs, undefined, { signal: within });
        return probe(async () => "1");
      },
    },
    engine: { outside: async () => undefined },
    giveUp: () => false,
  });
  const sandbox = { ref: "any" } as LeasedSandbox;
  expect(await control.newOomKills(sandbox)).toBe(true);
  answersAfterMs = 0;
  expect(await control.newOomKills(sandbox)).toBe(false);
});

test("OOM kills that explain no end soon explain none later", async () => {
  const control = new ProcessControl({
    shells: { ask: (_sandbox, _user, probe) => probe(async () => "3") },
    engine: { outside: async () => undefined },
    giveUp: () => false,
  });
  const sandbox = { ref: "any" } as LeasedSandbox;
  const now = vi.spyOn(performance, "now").mockReturnValue(5_000);
  onTestFinished(() => now.mockRestore());
  expect(await control.wasOomKilled(sandbox, 0)).toBe(true);
  now.mockReturnValue(5_900);
  expect(await control.wasOomKilled(sandbox, 0)).toBe(true);
  const other = { ref: "other" } as LeasedSandbox;
  expect(await control.wasOomKilled(other, 0)).toBe(true);
  now.mockReturnValue(7_000);
  expect(await control.wasOomKilled(sandbox, 0)).toBe(false);
  expect(await control.newOomKills(other)).toBe(false);
});

test("OOM kills that cannot be counted at a restart explain no end after it", async () => {
  let count: string | undefined;
  const control = new ProcessControl({
    shells: {
      ask: async (_sandbox, _user, probe) => {
        const answer = count;
        if (answer === undefined) throw new BerthError("ENGINE_UNAVAILABLE", "No shell answers.");
        return probe(async () => answer);
      },
    },
    engine: { outside: async () => undefined },
    giveUp: () => false,
  });
  const sandbox = { ref: "any" } as LeasedSandbox;
  await control.recover(sandbox);
  expect(await control.newOomKills(sandbox)).toBeUndefined();
  count = "1";
  expect(await control.wasOomKilled(sandbox, 0)).toBe(false);
  count = "2";
  expect(await control.wasOomKilled(sandbox, 0)).toBe(true);
});
