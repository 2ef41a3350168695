import { expect, test } from "vitest";
import { stayOpen } from "../../../src/base/async.ts";
import { connection, halt } from "../../support/halt.ts";

test("what arrives during a halt is taken before the time is over, however long the halt", async () => {
  const [near, far] = await connection();
  const over = new AbortController();
  near.on("data", () => over.abort());
  const waiting = stayOpen(200, over.signal);
  far.write("x");
  halt(1_000);
  await waiting;
  expect(over.signal.aborted).toBe(true);
});

test("the time passes if nothing arrives", async () => {
  const start = performance.now();
  await stayOpen(250);
  // The timer of a step may fire up to a millisecond early.
  expect(performance.now() - start).toBeGreaterThan(235);
});
