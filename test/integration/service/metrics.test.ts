import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";

/** The samples without labels in a service's /metrics. */
async function samples({ app }: TestApp): Promise<Map<string, number>> {
  const response = await fetch(`http://${app.address}/metrics`);
  const lines = (await response.text()).split("\n").filter((line) => /^\w+ /.test(line));
  return new Map(lines.map((line) => [line.split(" ")[0] ?? "", Number(line.split(" ")[1])]));
}

const NAMES = [
  "process_resident_memory_bytes",
  "process_open_fds",
  "process_max_fds",
  "process_cpu_seconds_total",
  "process_start_time_seconds",
  "nodejs_heap_size_total_bytes",
  "nodejs_heap_size_used_bytes",
  "nodejs_external_memory_bytes",
  "nodejs_eventloop_lag_seconds",
  "nodejs_eventloop_lag_mean_seconds",
  "nodejs_eventloop_lag_p50_seconds",
  "nodejs_eventloop_lag_p99_seconds",
  "nodejs_eventloop_lag_max_seconds",
];

test("two services of one process report its memory, descriptors and event loop, and the second continues without the first", async () => {
  const one = await startTestApp({ engine: "bubblewrap" });
  const two = await startTestApp({ engine: "bubblewrap" });
  try {
    for (const service of [one, two]) {
      const found = await samples(service);
      for (const name of NAMES) expect(found.get(name) ?? Number.NaN, name).toBeGreaterThanOrEqual(0);
      expect(found.get("process_resident_memory_bytes")).toBeGreaterThan(1024 * 1024);
      expect(found.get("process_open_fds")).toBeGreaterThan(3);
      expect(found.get("process_start_time_seconds")).toBeLessThanOrEqual(Date.now() / 1000);
    }
    await one.stop();
    // Blocks the event loop for a while, which the metrics must show.
    await eventually(async () => {
      await sleep(100);
      const end = performance.now() + 300;
      while (performance.now() < end);
      await sleep(100);
      return ((await samples(two)).get("nodejs_eventloop_lag_max_seconds") ?? 0) > 0.2;
    });
  } finally {
    await one.stop().catch(() => {});
    await two.stop();
  }
});
