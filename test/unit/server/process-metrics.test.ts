import { execFile } from "node:child_process";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
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

test("all figures about the lag of the event loop are of the time since the last scrape", async () => {
  const registry = new Registry();
  const metrics = new ProcessMetrics(registry);
  const kinds = async () => {
    const text = await registry.metrics();
    const found = text.matchAll(/^nodejs_eventloop_lag_(mean|p50|p99|max)_seconds (\S+)$/gm);
    return Object.fromEntries([...found].map(([, kind, seconds]) => [kind, Number(seconds)]));
  };
  try {
    await kinds();
    await sleep(50);
    const end = performance.now() + 500;
    while (performance.now() < end);
    await sleep(50);
    const blocked = await kinds();
    await sleep(50);
    const later = await kinds();
    // A scrape whose figures are of different times may show a percentile above the maximum.
    for (const { mean, p50, p99, max } of [blocked, later]) {
      expect(Math.max(mean ?? Number.NaN, p50 ?? Number.NaN, p99 ?? Number.NaN)).toBeLessThanOrEqual(
        max ?? 0,
      );
    }
  } finally {
    metrics.stop();
  }
});

test("the metrics can be read when no more files may be open, and say so", async () => {
  const place = (file: string) => JSON.stringify(path.join(import.meta.dirname, file));
  const script = `
    import { openSync } from "node:fs";
    import { Registry } from ${place("../../../node_modules/prom-client/index.js")};
    import { ProcessMetrics } from ${place("../../../src/server/process-metrics.ts")};
    const registry = new Registry();
    const metrics = new ProcessMetrics(registry);
    await registry.metrics();
    try {
      for (;;) openSync("/dev/null");
    } catch (error) {
      console.log(error.code);
    }
    const read = (name) => registry.getSingleMetricAsString(name).catch(String);
    console.log((await read("process_open_fds")).split("\\n").at(-1));
    console.log(/^process_resident_memory_bytes \\d{7,}$/m.test(await read("process_resident_memory_bytes")));
    metrics.stop();`;
  const node = [process.execPath, "--input-type=module", "-e", script];
  const { stdout } = await promisify(execFile)("sh", ["-c", 'ulimit -n 100 && exec "$@"', "sh", ...node]);
  expect(stdout).toBe("EMFILE\nprocess_open_fds 100\ntrue\n");
});
