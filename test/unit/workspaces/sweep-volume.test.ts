import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import type { OpenVolume, SpawnedProcess } from "../../../src/engine/port.ts";
import { sweepVolume } from "../../../src/workspaces/volumes/measure.ts";

/** A volume in which each script writes what the test says. */
function newVolume(outputOf: (script: string) => string) {
  const scripts: string[] = [];
  const volume: OpenVolume = {
    path: "/volume",
    close: async () => {},
    spawn: async ({ argv }, sink) => {
      const script = argv.at(-1) ?? "";
      scripts.push(script);
      sink.data("stdout", Buffer.from(outputOf(script)));
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
