import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import type { OpenVolume, SpawnedProcess } from "../../../src/engine/port.ts";
import { sweepVolume } from "../../../src/workspaces/volumes/measure.ts";

/** A volume in which each script writes what the test says. */
function newVolume(outputOf: (script: string) => string, chunkBytes = Number.POSITIVE_INFINITY) {
  const scripts: string[] = [];
  const volume: OpenVolume = {
    path: "/volume",
    close: async () => {},
    spawn: async ({ argv }, sink) => {
      const script = argv.at(-1) ?? "";
      scripts.push(script);
      const output = Buffer.from(outputOf(script));
      const size = Math.min(chunkBytes, output.length + 1);
      for (let at = 0; at < output.length; at += size) sink.data("stdout", output.subarray(at, at + size));
      sink.end();
      const process = { pause() {}, resume() {}, closeStdin() {}, close() {}, wait: async () => 0 };
      return process as Partial<SpawnedProcess> as SpawnedProcess;
    },
  };
  return { volume, scripts };
}

test("many names of temporary files in a volume do not block the event loop", async () => {
  const names = Array.from({ length: 30_000 }, (_, index) => `./d/.berth-${index}`);
  const { volume, scripts } = newVolume((script) => (script.includes("-exec") ? "" : names.join("\n")));
  const left = new Set([".berth-7", ".berth-29998"]);
  let looks = 0;
  const perTurn: number[] = [];
  let isOver = false;
  const count = async (): Promise<void> => {
    for (; !isOver; looks = 0) {
      await setImmediate();
      perTurn.push(looks);
    }
  };
  const counting = count();
  const isLeftBehind = (name: string): boolean => {
    looks++;
    for (const end = performance.now() + 0.005; performance.now() < end; );
    return left.has(name);
  };
  await sweepVolume(volume, "/volume/t0", isLeftBehind, new AbortController().signal);
  isOver = true;
  await counting;
  // A turn contains 5 ms of it, and each name takes 5 us.
  expect(Math.max(...perTurn)).toBeLessThan(2_500);
  expect(scripts).toHaveLength(2);
  for (const name of left) expect(scripts[1]).toContain(`-name '${name}'`);
});

test("a path of any length in a volume costs no more than as many short ones", async () => {
  const sweep = async (separator: string): Promise<number> => {
    const paths = Array.from({ length: 512 }, () => `${"d".repeat(64 * 1024)}${separator}`);
    const found = `./${paths.join("")}/.berth-7\n`;
    const { volume, scripts } = newVolume((script) => (script.includes("-exec") ? "" : found), 64 * 1024);
    const before = process.cpuUsage();
    await sweepVolume(volume, "/volume/t0", (name) => name === ".berth-7", new AbortController().signal);
    expect(scripts[1]).toContain("-name '.berth-7'");
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  // Once before, so that neither pays for the compiler.
  await sweep("\n");
  const short = await sweep("\n");
  expect(await sweep("/")).toBeLessThan(short * 5);
});
