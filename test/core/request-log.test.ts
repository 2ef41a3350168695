import { describe, expect, test } from "vitest";
import { RequestLog } from "../../src/core/request-log.ts";
import { ManualClock, settled } from "../support/manual-clock.ts";

const DAY = 24 * 3_600_000;
const never = new AbortController().signal;
const key = (requestId: string, fingerprint = "same") => ({
  owner: "me",
  method: "Create",
  requestId,
  fingerprint,
});

function newLog(limit?: number) {
  const clock = new ManualClock();
  const log = new RequestLog(clock, limit);
  let runs = 0;
  const count = async (): Promise<number> => ++runs;
  return { clock, log, count, runs: () => runs };
}

test("the same request is carried out once, and all its callers get the answer", async () => {
  const { log, count, runs } = newLog();
  const together = await Promise.all(Array.from({ length: 10 }, () => log.run(key("a"), never, count)));
  expect(together).toEqual(Array.from({ length: 10 }, () => 1));
  expect(await log.run(key("a"), never, count)).toBe(1);
  expect(runs()).toBe(1);
});

test("requests without an id, with other ids, of other owners or methods have nothing in common", async () => {
  const { log, count, runs } = newLog();
  await log.run(key(""), never, count);
  await log.run(key(""), never, count);
  await log.run(key("a"), never, count);
  await log.run(key("b"), never, count);
  await log.run({ ...key("a"), owner: "you" }, never, count);
  await log.run({ ...key("a"), method: "Delete" }, never, count);
  expect(runs()).toBe(6);
});

test("an id that comes with something else is refused, also while the first is under way", async () => {
  const { log, count } = newLog();
  const gate = Promise.withResolvers<number>();
  const first = log.run(key("a"), never, () => gate.promise);
  await expect(log.run(key("a", "other"), never, count)).rejects.toMatchObject({
    reason: "REQUEST_ID_REUSED",
  });
  gate.resolve(1);
  await first;
  await expect(log.run(key("a", "other"), never, count)).rejects.toMatchObject({
    reason: "REQUEST_ID_REUSED",
  });
});

test("a request that failed is forgotten: a retry tries again, with other parameters if need be", async () => {
  const { log, count } = newLog();
  const fail = (): Promise<number> => Promise.reject(new Error("no luck"));
  await expect(Promise.all([log.run(key("a"), never, fail), log.run(key("a"), never, fail)])).rejects.toThrow(
    "no luck",
  );
  expect(await log.run(key("a", "other"), never, count)).toBe(1);
});

describe("a caller that goes away", () => {
  test("leaves the work to the others", async () => {
    const { log } = newLog();
    const gate = Promise.withResolvers<string>();
    let canceled = false;
    const work = (signal: AbortSignal): Promise<string> => {
      signal.addEventListener("abort", () => {
        canceled = true;
      });
      return gate.promise;
    };
    const leaving = new AbortController();
    const first = log.run(key("a"), leaving.signal, work);
    const second = log.run(key("a"), never, work);
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(canceled).toBe(false);
    gate.resolve("done");
    expect(await second).toBe("done");
  });

  test("as the last one ends the work, and the next request begins anew", async () => {
    const { log, count } = newLog();
    const leaving = new AbortController();
    let canceled = false;
    const endless = (signal: AbortSignal): Promise<number> =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => {
          canceled = true;
          // Cleaning up takes a while.
          setTimeout(() => reject(new Error("late")), 20);
        });
      });
    const first = log.run(key("a"), leaving.signal, endless);
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(canceled).toBe(true);
    expect(await log.run(key("a"), never, count)).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 40));
    // The end of the first one does not take the second one's answer along.
    expect(await log.run(key("a"), never, count)).toBe(1);
  });

  test("before it began runs nothing", async () => {
    const { log, count, runs } = newLog();
    await expect(log.run(key("a"), AbortSignal.abort(), count)).rejects.toMatchObject({ reason: "CANCELED" });
    expect(runs()).toBe(0);
  });
});

test("answers are kept for a day", async () => {
  const { log, clock, count } = newLog();
  await log.run(key("a"), never, count);
  await clock.advance(DAY - 1);
  expect(await log.run(key("a"), never, count)).toBe(1);
  await clock.advance(1);
  expect(await log.run(key("a", "other"), never, count)).toBe(2);
});

test("no more answers are kept than may be; those under way are not among the first to go", async () => {
  const { log, count } = newLog(10);
  const gate = Promise.withResolvers<string>();
  const pending = log.run(key("pending"), never, () => gate.promise);
  for (let i = 0; i < 50; i++) await log.run(key(`r${i}`), never, count);
  await settled();
  const again = log.run(key("pending"), never, async () => "run twice");
  gate.resolve("once");
  expect([await pending, await again]).toEqual(["once", "once"]);
  // The newest is known still, an old one is not.
  expect(await log.run(key("r49"), never, count)).toBe(50);
  expect(await log.run(key("r0"), never, count)).toBe(51);
});
