import { createHook } from "node:async_hooks";
import { expect, test } from "vitest";
import { keepThreadPoolAwake } from "../../../src/base/thread-pool.ts";

test("the thread pool gets a job regularly, which keeps no program alive", async () => {
  const timersBefore = process.getActiveResourcesInfo().filter((type) => type === "Timeout").length;
  let jobs = 0;
  const hook = createHook({
    init: (_, type) => {
      if (type === "FSREQCALLBACK") jobs++;
    },
  }).enable();
  keepThreadPoolAwake();
  const timersAfter = process.getActiveResourcesInfo().filter((type) => type === "Timeout").length;
  await expect.poll(() => jobs).toBeGreaterThanOrEqual(3);
  hook.disable();
  expect(timersAfter).toBe(timersBefore);
});
