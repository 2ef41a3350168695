import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { restAwake } from "../../../src/base/async.ts";

test("a rest of a process's own time is not over after a halt of all of it", async () => {
  let isOver = false;
  const resting = restAwake(500).then(() => {
    isOver = true;
  });
  for (const since = performance.now(); performance.now() - since < 1_000; );
  // Each turn of the event loop ends at most one of its ten parts.
  for (let turns = 0; turns < 5; turns++) await setImmediate();
  expect(isOver).toBe(false);
  await resting;
  expect(isOver).toBe(true);
});
