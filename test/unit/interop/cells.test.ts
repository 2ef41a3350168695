import { expect, test } from "vitest";
import { CELLS, problemOf, type Result, taskOf } from "../../../interop/cells.ts";
import { type Outcome, table } from "../../../interop/report.ts";

test.each(CELLS)("an empty result of %s does not pass, unless leaving was all", (cell) => {
  const problem = problemOf(taskOf(cell, 1, "hash"), {});
  if (cell === "cancel") expect(problem).toBeUndefined();
  else expect(problem).toMatch(/^\w+ is undefined, not /);
});

test.each<[string, Result]>([
  ["bytes that are missing", { bytes: 1, sha256: "hash", exitCode: 0 }],
  ["other bytes", { bytes: 12_582_912, sha256: "other", exitCode: 0 }],
  ["another exit code", { bytes: 12_582_912, sha256: "hash", exitCode: 1 }],
])("a stream with %s fails", (_about, result) => {
  expect(
    problemOf(taskOf("12 MB", 1, "hash"), { bytes: 12_582_912, sha256: "hash", exitCode: 0 }),
  ).toBeUndefined();
  expect(problemOf(taskOf("12 MB", 1, "hash"), result)).toBeDefined();
});

test("a call that succeeded was not canceled, and answers to others do not count for it", () => {
  expect(problemOf(taskOf("cancel", 1, ""), { code: 0 })).toBe("ended with code 0, not 1");
  const outputs = Array.from({ length: 100 }, (_, index) => `${index}\n`);
  expect(problemOf(taskOf("100 in parallel", 1, ""), { outputs })).toBeUndefined();
  expect(problemOf(taskOf("100 in parallel", 1, ""), { outputs: outputs.toReversed() })).toBeDefined();
  expect(problemOf(taskOf("100 in parallel", 1, ""), { statuses: { OK: 99, Internal: 1 } })).toBeDefined();
});

test("the table shows what did not pass, with the reason", () => {
  const passed: Outcome = { kind: "passed", ms: 1 };
  const outcomes = {
    unary: passed,
    stream: { kind: "failed", why: "bytes is 1, not 2" },
    reason: { kind: "cannot", why: "It counts codes." },
    deadline: { kind: "not run", why: "go is missing." },
    cancel: passed,
    "12 MB": { kind: "cannot", why: "It counts codes." },
    "100 in parallel": passed,
  } as const;
  const lines = table([{ name: "some", version: "some 1", outcomes }]).split("\n");
  expect(lines[2]?.split("|").map((cell) => cell.trim())).toEqual([
    "",
    "some",
    "some 1",
    "yes",
    "**FAILED** (1)",
    "– (2)",
    "*not run* (3)",
    "yes",
    "– (2)",
    "yes",
    "",
  ]);
  expect(lines.slice(4)).toEqual(["1. bytes is 1, not 2", "2. It counts codes.", "3. go is missing."]);
});
