import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { paintFor } from "../../../src/cli/colour.ts";
import { formatTable } from "../../../src/cli/format.ts";
import { runHere } from "../../support/program-here.ts";

const terminal = Object.assign(new PassThrough(), { isTTY: true });
const pipe = new PassThrough();
const GREEN = "\x1b[32mup\x1b[39m";

test.each([
  [terminal, {}, GREEN],
  [pipe, {}, "up"],
  [terminal, { NO_COLOR: "1" }, "up"],
  [terminal, { NO_COLOR: "" }, GREEN],
  [terminal, { TERM: "dumb" }, "up"],
  [pipe, { FORCE_COLOR: "1" }, GREEN],
  [pipe, { FORCE_COLOR: "", NO_COLOR: "1" }, GREEN],
  [terminal, { FORCE_COLOR: "0" }, "up"],
  [terminal, { FORCE_COLOR: "false" }, "up"],
])("colours by stream and environment: %#", (stream, env, painted) => {
  expect(paintFor(stream, env)("up", "good")).toBe(painted);
});

test("text without a tone has no colour", () => {
  expect(paintFor(terminal, {})("up", undefined)).toBe("up");
});

test("colour does not count towards the width of a column", () => {
  const paint = (text: string, row: number, column: number) =>
    row === 0 && column === 0 ? `<${text}>` : text;
  const rows = [
    ["up", "x"],
    ["long", "y"],
  ];
  expect(formatTable(["S", "T"], rows, paint)).toBe("S     T\n<up>    x\nlong  y\n");
});

test("errors stand out on a terminal", async () => {
  const plain = await runHere(["ls", "--nonsense"]);
  expect(plain.stderr).toMatch(/^berth: unknown option '--nonsense'\n/);
  const coloured = await runHere(["ls", "--nonsense"], { isTTY: true });
  expect(coloured.stderr).toBe(plain.stderr.replace("berth:", "\x1b[31mberth:\x1b[39m"));
});
