import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { ProcessMetrics } from "../../../src/server/process-metrics.ts";
import { eventually } from "../../support/eventually.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** The number of garbage collections that a registry has counted. */
async function collections(registry: Registry): Promise<number> {
  const text = await registry.getSingleMetricAsString("nodejs_gc_duration_seconds");
  const counts = text.matchAll(/_count\{[^}]*\} (\d+)/g);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

test("garbage collections are counted until the counter is stopped, and further by another", async () => {
  const [stopped, goesOn] = [new Registry(), new Registry()];
  const [first, second] = [new ProcessMetrics(stopped), new ProcessMetrics(goesOn)];
  collectGarbage();
  await eventually(async () => (await collections(stopped)) > 0 && (await collections(goesOn)) > 0);
  first.stop();
  const before = await collections(stopped);
  const beforeOfOther = await collections(goesOn);
  collectGarbage();
  await eventually(async () => (await collections(goesOn)) > beforeOfOther);
  expect(await collections(stopped)).toBe(before);
  second.stop();
  collectGarbage();
  const last = await collections(goesOn);
  await sleep(100);
  expect(await collections(goesOn)).toBe(last);
});
