import { expect, test } from "vitest";
import { Redaction } from "../../../src/processes/redaction.ts";

const VALUE = "a \"b\" 'c' \\d\te\nf";

test.each([
  ["Python's", String.raw`'a "b" \'c\' \\d\te\nf'`],
  ["JSON's", JSON.stringify(VALUE)],
  ["no escapes", `'${VALUE}'`],
])("a value in a literal with %s is covered between its quotes", async (_, literal) => {
  const text = await (await Redaction.of([VALUE, "other"])).text(`x = ${literal}, other`);
  expect(text).toMatch(/^x = (['"])\[redacted\]\1, \[redacted\]$/);
});

test("a value with a trailing newline is also redacted without it, as a shell's $(…) passes it", async () => {
  const key = "-----BEGIN KEY-----\nc2VjcmV0\n-----END KEY-----\n";
  const passed: string[] = [];
  const redaction = await Redaction.of([key, "\n"]);
  const output = (await Redaction.of([key])).output((_, chunk) => passed.push(chunk.toString()));
  output.data("stdout", Buffer.from(`<${key.trimEnd()}> ${key}`));
  output.end();
  expect(passed.join("")).toBe("<[redacted]> [redacted]\n");
  expect(await redaction.text(`x = ${JSON.stringify(key.trimEnd())}`)).toBe('x = "[redacted]"');
});

test("the start of a value is removed at the end of a truncated text, and kept at the end of a complete one", async () => {
  const redaction = await Redaction.of(["hunter22"]);
  expect(await redaction.text("key=hunter22, key=hunt", { isCut: true })).toBe("key=[redacted], key=");
  expect(await redaction.text("key=hunter22", { isCut: true })).toBe("key=[redacted]");
  expect(await redaction.text("key=hunt")).toBe("key=hunt");
});

test("values with a terminal's CR LF are redacted, and each stream separately", async () => {
  const passed: string[] = [];
  const output = (await Redaction.of(["one\ntwo"])).output((stream, chunk) =>
    passed.push(`${stream}: ${chunk}`),
  );
  output.data("stdout", Buffer.from("on"));
  output.data("stderr", Buffer.from("e\ntwo."));
  output.data("stdout", Buffer.from("e\r\ntwo, on"));
  output.end();
  expect(passed).toEqual(["stderr: e\ntwo.", "stdout: [redacted], ", "stdout: on"]);
});
