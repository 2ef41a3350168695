import { expect, test } from "vitest";
import { bounded } from "../../../src/workspaces/copy.ts";

const signal = new AbortController().signal;
const untilAborted = (either: AbortSignal) =>
  new Promise<void>((_, reject) => {
    either.addEventListener("abort", () => reject(new Error("killed")), { once: true });
  });

test("a copy that exceeds its limit is ended while it runs", async () => {
  const sizes = [10, 90, 110];
  const measure = async () => sizes.shift() ?? 0;
  const copy = bounded(untilAborted, { maxBytes: 100, measure, signal, pauseMs: 10 });
  await expect(copy).rejects.toMatchObject({ reason: "NO_SPACE", metadata: { quota_bytes: "100" } });
  expect(sizes).toEqual([]);
});

test("a copy that exceeds its limit at its end is refused", async () => {
  const copy = bounded(async () => {}, { maxBytes: 100, measure: async () => 101, signal });
  await expect(copy).rejects.toMatchObject({ reason: "NO_SPACE" });
});

test("a failing copy fails with its own error, and a canceled one ends", async () => {
  const failing = bounded(() => Promise.reject(new Error("own")), {
    maxBytes: 1,
    measure: async () => 0,
    signal,
  });
  await expect(failing).rejects.toThrow("own");
  const abort = new AbortController();
  const options = { maxBytes: Number.POSITIVE_INFINITY, measure: async () => 7, signal: abort.signal };
  expect(await bounded(async () => {}, options)).toBe(7);
  const ended = bounded(untilAborted, options);
  abort.abort();
  await expect(ended).rejects.toThrow("killed");
});
