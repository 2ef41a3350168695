import { expect, test } from "vitest";
import { trimEndOf, trimOf } from "../../../src/base/trim.ts";
import { processorMs } from "../../support/measure.ts";

test("characters at the ends are removed, those inside stay", () => {
  expect(trimEndOf(";a;b;;", ";")).toBe(";a;b");
  expect(trimOf("\t a \t b \n", "\t\n ")).toBe("a \t b");
  for (const empty of ["", " ", " \t "]) expect(trimOf(empty, " \t")).toBe("");
});

test("a long run inside takes almost no time", () => {
  const text = `a${" ".repeat(1_000_000)}b`;
  expect(processorMs(() => expect(trimOf(text, " ")).toBe(text))).toBeLessThan(1_000);
});
