import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const MODULE = path.join(import.meta.dirname, "../../../src/base/memory.ts");

/** Bytes of buffers that a process of its own has once it has let go of 26 MB of them, and waited. */
async function afterWaiting(idle: boolean): Promise<number> {
  const script = `
    const { collectWhenIdle } = await import(${JSON.stringify(MODULE)});
    ${idle ? "collectWhenIdle(50);" : ""}
    const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    await wait(300);
    let kept = Array.from({ length: 400 }, () => Buffer.alloc(65_536, 1));
    kept = undefined;
    for (let waits = 0; waits < 100 && process.memoryUsage().arrayBuffers > 5e6; waits++) await wait(50);
    console.log(process.memoryUsage().arrayBuffers);`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  return Number(stdout);
}

test("garbage of buffers is collected while nothing asks for memory", async () => {
  const [left, collected] = await Promise.all([afterWaiting(false), afterWaiting(true)]);
  expect(left).toBeGreaterThan(26e6);
  expect(collected).toBeLessThan(5e6);
});
