import { expect, test } from "vitest";
import { nearest } from "../../../src/base/nearest.ts";

const KNOWN = ["file-path", "limit", "offset", "pattern", "timeout"];

test.each([
  ["file_pat", "file-path"],
  ["Limits", "limit"],
  ["ofset", "offset"],
  ["limitless", undefined],
  ["path", undefined],
  ["", undefined],
])("of the known names %j means %j", (word, meant) => {
  expect(nearest(word, KNOWN)).toBe(meant);
});

test("a word of megabytes takes no time to compare", () => {
  const word = "k".repeat(4_000_000);
  const before = process.threadCpuUsage();
  expect(nearest(word, KNOWN)).toBeUndefined();
  const { user, system } = process.threadCpuUsage(before);
  // To compare it with a single name takes longer.
  expect((user + system) / 1000).toBeLessThan(100);
});
