import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { ProgressLine } from "../../../src/cli/progress-line.ts";

/** A terminal of this width, and what is drawn on it. */
function terminalOf(columns: number | undefined, TERM = "xterm") {
  const stderr = Object.assign(new PassThrough(), { isTTY: true, columns });
  const line = ProgressLine.on({ stderr, env: { TERM } });
  return { line, drawn: (): string => stderr.read()?.toString() ?? "" };
}

test.each([
  [80, "pulling registry.example/image", ": 1 of 2 layers", "pulling registry.example/image: 1 of 2 layers"],
  // The last column stays free.
  [46, "pulling registry.example/image", ": 1 of 2 layers", "pulling registry.example/image: 1 of 2 layers"],
  [45, "pulling registry.example/image", ": 1 of 2 layers", "pulling registry.example/ima…: 1 of 2 layers"],
  [20, "pulling registry.example/image", ": 1 of 2 layers", "pul…: 1 of 2 layers"],
  [10, "pulling registry.example/image", ": 1 of 2 layers", "…: 1 of 2"],
  [10, "copied 12 MiB", "", "copied 1…"],
  [0, "x".repeat(100), "", `${"x".repeat(78)}…`],
  [undefined, "x".repeat(100), "", `${"x".repeat(78)}…`],
])("in %s columns, a progress line fits", (columns, text, end, shown) => {
  const { line, drawn } = terminalOf(columns);
  line?.draw(text, end);
  expect(drawn()).toBe(`\r\x1b[K${shown}`);
  line?.clear();
  expect(drawn()).toBe("\r\x1b[K");
});

test("what was not drawn is not removed", () => {
  const { line, drawn } = terminalOf(80);
  line?.clear();
  expect(drawn()).toBe("");
});

test("a terminal that cannot go back in a line gets none", () => {
  expect(terminalOf(80, "dumb").line).toBeUndefined();
});
