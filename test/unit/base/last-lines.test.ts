import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { expect, test } from "vitest";
import { LastLines } from "../../../src/base/last-lines.ts";

const MAX = 100;

function collected(chunks: readonly string[], isNoise?: (line: string) => boolean): string {
  const lines = new LastLines(MAX, isNoise);
  for (const chunk of chunks) lines.add(Buffer.from(chunk, "latin1"));
  return lines.text;
}

test("lines are complete, however they are split into chunks", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ maxLength: 20, unit: fc.constantFrom("a", "b", "\n") })), (chunks) => {
      const written = chunks.join("");
      const text = collected(chunks);
      expect(text.length).toBeLessThanOrEqual(3 * MAX);
      if (written.length <= MAX) expect(text).toBe(written);
      expect(written.endsWith(text)).toBe(true);
      const before = written.slice(0, written.length - text.length);
      const [first = ""] = text.split("\n", 1);
      if (first.length < MAX) expect(before === "" || before.endsWith("\n")).toBe(true);
    }),
  );
});

test("of many lines the last ones are kept, and of a line that is too long its end", () => {
  const lines = Array.from({ length: 1000 }, (_, i) => `line ${i}\n`);
  const text = collected([lines.join("")]);
  expect(text).toMatch(/^line \d+\n/);
  expect(text.endsWith("line 998\nline 999\n")).toBe(true);
  expect(text.length).toBeGreaterThanOrEqual(MAX - "line 999\n".length);
  expect(collected(["short\n", "x".repeat(1000), "end\n"])).toBe(`short\n${"x".repeat(MAX - 3)}end\n`);
});

test("noise does not push out other lines, and is not shown", () => {
  const isNoise = (line: string): boolean => line.endsWith("vanished");
  const noise = Array.from({ length: 1000 }, (_, i) => `file ${i} vanished\n`);
  expect(collected(["disk failed\n", ...noise, "left"], isNoise)).toBe("disk failed\nleft");
});

test("a kept line does not keep its chunk in memory", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const chunk = Buffer.from(`${"x".repeat(64 * 1024)}noise\nwhat is kept of its chunk\n`);
  const lines = new LastLines(16 * 1024, (line) => line.endsWith("noise"));
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 1_000; i++) lines.add(chunk);
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(8 * 2 ** 20);
  expect(lines.text).toMatch(/^(what is kept of its chunk\n)+$/);
});
