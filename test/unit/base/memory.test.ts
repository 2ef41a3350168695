import { execFile } from "node:child_process";
import path from "node:path";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, onTestFinished, test, vi } from "vitest";
import { collectWhenIdle } from "../../../src/base/memory.ts";

/** Loaded in separate processes, because V8 is tuned once per process. */
const MODULE = JSON.stringify(path.join(import.meta.dirname, "../../../src/base/memory.ts"));

async function run(script: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  return stdout;
}

test("an idle process collects once after its start, and when enough garbage may have accumulated", async () => {
  setFlagsFromString("--expose-gc");
  const gc: (options: unknown) => void = runInNewContext("gc");
  const flavors: string[] = [];
  const timer = collectWhenIdle({
    checkMs: 20,
    collect: (options) => {
      flavors.push(options.flavor);
      // Collect the garbage of earlier tests before this one counts.
      gc(options);
    },
    trim() {},
  });
  onTestFinished(() => clearInterval(timer));
  await expect.poll(() => flavors).toEqual(["last-resort"]);
  await sleep(200);
  expect(flavors).toEqual(["last-resort"]);
  const kept = Buffer.alloc(32 << 20);
  await expect.poll(() => flavors).toEqual(["last-resort", "regular"]);
  await sleep(200);
  expect(flavors).toEqual(["last-resort", "regular"]);
  expect(kept.length).toBe(32 << 20);
});

test("memory is trimmed at the check after a collection, and after work, once", async () => {
  // What the machine does meanwhile counts as work otherwise.
  let utilization = 0;
  const checks = vi
    .spyOn(performance, "eventLoopUtilization")
    .mockImplementation(() => ({ idle: 1 - utilization, active: utilization, utilization }));
  onTestFinished(() => checks.mockRestore());
  const someChecks = async () => {
    const before = checks.mock.calls.length;
    await expect.poll(() => checks.mock.calls.length - before).toBeGreaterThan(8);
  };
  const acts: string[] = [];
  const timer = collectWhenIdle({
    checkMs: 20,
    collect: () => acts.push("collect"),
    trim: () => acts.push("trim"),
  });
  onTestFinished(() => clearInterval(timer));
  const trims = () => acts.filter((act) => act === "trim");
  await expect.poll(() => acts).toEqual(["collect", "trim"]);
  await someChecks();
  expect(acts).toEqual(["collect", "trim"]);
  utilization = 0.5;
  await someChecks();
  expect(trims()).toHaveLength(1);
  utilization = 0;
  await expect.poll(trims).toHaveLength(2);
  await someChecks();
  expect(trims()).toHaveLength(2);
});

test("freed buffers between others that are in use leave the process", async () => {
  const script = `
    import { readFileSync } from "node:fs";
    import { setTimeout as sleep } from "node:timers/promises";
    import { collectWhenIdle, tuneMemory } from ${MODULE};
    const mebibytes = () => (Number(readFileSync("/proc/self/statm", "latin1").split(" ")[1]) * 4) / 1024;
    globalThis.buffers = Array.from({ length: 1_600 }, () => Buffer.allocUnsafeSlow(65_536).fill(1));
    buffers = buffers.filter((_, index) => index % 16 === 0);
    const before = mebibytes();
    collectWhenIdle({ checkMs: 50 });
    for (let check = 0; check < 1_200 && mebibytes() > before - 60; check++) await sleep(50);
    console.log(before - mebibytes());
    process.exit();`;
  vi.stubEnv("MALLOC_MMAP_THRESHOLD_", "1048576");
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(Number(await run(script))).toBeGreaterThan(60);
});

test("a busy process does not", async () => {
  const flavors: string[] = [];
  const timer = collectWhenIdle({ checkMs: 20, collect: ({ flavor }) => flavors.push(flavor) });
  onTestFinished(() => clearInterval(timer));
  const until = performance.now() + 300;
  // An event loop that waits for anything would count as idle if the machine halted meanwhile.
  while (performance.now() < until) await setImmediate();
  expect(flavors).toEqual([]);
});

test("V8 collects what nothing refers to", async () => {
  const script = `
    import { collectWhenIdle } from ${MODULE};
    const collected = new Promise((resolve) => {
      globalThis.registry = new FinalizationRegistry(resolve);
      registry.register(Buffer.alloc(65_536), "collected");
    });
    collectWhenIdle({ checkMs: 50 });
    const limit = setTimeout(() => console.log("kept"), 60_000);
    console.log(await collected);
    clearTimeout(limit);`;
  expect(await run(script)).toBe("collected\n");
});

test("streaming through an idle process takes little memory, and few collections of the whole heap", async () => {
  const script = `
    import { setTimeout as sleep } from "node:timers/promises";
    import { PerformanceObserver } from "node:perf_hooks";
    import { collectWhenIdle, noteStreamed, tuneMemory } from ${MODULE};
    tuneMemory();
    globalThis.live = Array.from({ length: 300_000 }, (_, index) => ({ index }));
    let major = 0;
    new PerformanceObserver((list) => {
      for (const { detail } of list.getEntries()) if (detail.kind === 4) major++;
    }).observe({ entryTypes: ["gc"] });
    const timer = collectWhenIdle({ checkMs: 50 });
    while (major === 0) await sleep(10);
    clearInterval(timer);
    // The longer a heap is idle, the less V8 lets it grow.
    await sleep(1_000);
    major = 0;
    let most = 0;
    // As many chunks as wait for a slow reader.
    const waiting = [];
    for (let count = 0; count < 4_000; count++) {
      waiting.push(Buffer.allocUnsafeSlow(65_536));
      if (waiting.length > 64) waiting.shift();
      noteStreamed(65_536);
      most = Math.max(most, process.memoryUsage().arrayBuffers);
      if (count % 100 === 0) await sleep(1);
    }
    await sleep(100);
    console.log(JSON.stringify({ major, most }));
    process.exit();`;
  const { major, most } = JSON.parse(await run(script));
  expect(most).toBeLessThan(64 << 20);
  expect(major).toBeLessThan(3);
});

test("a process that may open no more files lives on", async () => {
  const script = `
    import { openSync } from "node:fs";
    import { collectWhenIdle } from ${MODULE};
    try {
      for (;;) openSync("/dev/null");
    } catch (error) {
      console.log(error.code);
    }
    const timer = collectWhenIdle({
      checkMs: 20,
      collect() {
        setImmediate(() => console.log("collected"));
        clearInterval(timer);
      },
    });
    timer.ref();`;
  const node = [process.execPath, "--input-type=module", "-e", script];
  const limited = promisify(execFile)("sh", ["-c", 'ulimit -n 100 && exec "$@"', "sh", ...node]);
  const written = limited.then(
    ({ stdout }) => stdout,
    (error: unknown) => String(error),
  );
  expect(await written).toBe("EMFILE\ncollected\n");
});
