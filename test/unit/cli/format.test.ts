import { expect, test } from "vitest";
import { formatDuration, formatSize, formatTable, formatWord } from "../../../src/cli/format.ts";
import { visible } from "../../../src/cli/visible.ts";

test.each([
  [0, "0ms"],
  [999, "999ms"],
  [1000, "1s"],
  [61_000, "1m 1s"],
  [3_600_000, "1h"],
  [3_601_000, "1h"],
  [90_061_000, "1d 1h"],
])("%d ms is %s", (ms, text) => expect(formatDuration(ms)).toBe(text));

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1536, "1.5 KiB"],
  [512 * 2 ** 20, "512 MiB"],
  [3 * 2 ** 40, "3 TiB"],
])("%d bytes are %s", (bytes, text) => expect(formatSize(bytes)).toBe(text));

test("a table's columns are as wide as their widest cell", () => {
  expect(
    formatTable(
      ["A", "LONG"],
      [
        ["wide cell", "x"],
        ["", "y"],
      ],
    ),
  ).toBe("A          LONG\nwide cell  x\n           y\n");
});

test("a table may have hundreds of thousands of lines", () => {
  const format = () => formatTable(["A"], Array(200_000).fill(["x"]));
  expect(format).not.toThrow();
  expect(format()).toBe(`A\n${"x\n".repeat(200_000)}`);
});

test("words", () => {
  expect(formatWord("USER_KERNEL")).toBe("user-kernel");
  expect(formatWord(undefined)).toBe("unknown");
});

test("untrusted text cannot control a terminal", () => {
  expect(visible("caf\u00e9 \u{1f4a5}\n\t\x1b[2J\u202e\u0085")).toBe(
    "caf\u00e9 \u{1f4a5}\\n\\t\\u{1b}[2J\\u{202e}\\u{85}",
  );
});

test("columns are aligned with characters of any width in them", () => {
  const rows = [
    ["ann", "1"],
    ["日本語", "2"],
    ["ﾊﾝｶｸ", "3"],
    ["한국어 (Ａ)", "4"],
    ["e\u0301te\u0301", "5"],
    ["🙂 жук", "6"],
  ];
  const [heading = "", ...lines] = formatTable(["WORKER", "N"], rows).trimEnd().split("\n");
  expect(lines).toEqual([
    "ann          1",
    "日本語       2",
    "ﾊﾝｶｸ         3",
    "한국어 (Ａ)  4",
    "e\u0301te\u0301          5",
    "🙂 жук       6",
  ]);
  expect(heading).toBe("WORKER       N");
});
