import { execFile } from "node:child_process";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, onTestFinished, test } from "vitest";
import { collectWhenIdle } from "../../../src/base/memory.ts";

test("an idle process collects once after its start, and where enough may have gathered since", async () => {
  setFlagsFromString("--expose-gc");
  const gc: (options: unknown) => void = runInNewContext("gc");
  const flavors: string[] = [];
  const timer = collectWhenIdle(20, (options) => {
    flavors.push(options.flavor);
    // What earlier tests left would otherwise go while this one counts.
    gc(options);
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

test("a process that is at work does not", async () => {
  const flavors: string[] = [];
  const timer = collectWhenIdle(20, ({ flavor }) => flavors.push(flavor));
  onTestFinished(() => clearInterval(timer));
  const until = performance.now() + 300;
  while (performance.now() < until) {
    const pause = performance.now() + 10;
    while (performance.now() < pause);
    await sleep(1);
  }
  expect(flavors).toEqual([]);
});

test("V8 collects what nothing refers to", async () => {
  const script = `
    import { collectWhenIdle } from ${JSON.stringify(path.join(import.meta.dirname, "../../../src/base/memory.ts"))};
    const collected = new Promise((resolve) => {
      globalThis.registry = new FinalizationRegistry(resolve);
      registry.register(Buffer.alloc(65_536), "collected");
    });
    collectWhenIdle(50);
    const limit = setTimeout(() => console.log("kept"), 60_000);
    console.log(await collected);
    clearTimeout(limit);`;
  const args = ["--input-type=module", "-e", script];
  expect((await promisify(execFile)(process.execPath, args)).stdout).toBe("collected\n");
});
