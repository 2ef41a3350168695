import { expect, test } from "vitest";
import { Redaction } from "../../../src/processes/redaction.ts";

const VALUE = "a \"b\" 'c' \\d\te\nf";

test.each([
  ["Python's", String.raw`'a "b" \'c\' \\d\te\nf'`],
  ["JSON's", JSON.stringify(VALUE)],
  ["no escapes", `'${VALUE}'`],
])("a value in a literal with %s is covered between its quotes", (_, literal) => {
  const text = new Redaction([VALUE, "other"]).text(`x = ${literal}, other`);
  expect(text).toMatch(/^x = (['"])\[redacted\]\1, \[redacted\]$/);
});

test("a terminal's ends of lines are covered, and each stream for itself", () => {
  const passed: string[] = [];
  const output = new Redaction(["one\ntwo"]).output((stream, chunk) => passed.push(`${stream}: ${chunk}`));
  output.data("stdout", Buffer.from("on"));
  output.data("stderr", Buffer.from("e\ntwo."));
  output.data("stdout", Buffer.from("e\r\ntwo, on"));
  output.end();
  expect(passed).toEqual(["stderr: e\ntwo.", "stdout: [redacted], ", "stdout: on"]);
});
