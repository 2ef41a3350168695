import { expect, test } from "vitest";
import { syntaxOf } from "../../../src/sessions/types/files/perl-syntax.ts";
import { processorMs } from "../../support/measure.ts";

test.each([
  ["a\\d", "\\d"],
  ["(?:a)", "(?"],
  ["a+?", "+?"],
  ["a{2}?", "}?"],
  ["[\\d_]", "\\d"],
  ["[^\\]]x]", "\\]"],
  ["\\x41", "\\x"],
  ["[[:alpha:]\\w]", "\\w"],
])("%s is Perl's", (pattern, perl) => {
  expect(syntaxOf(pattern)).toEqual({ perl, extended: undefined });
});

test.each([
  "a+",
  "\\w\\s\\b(a|b)?\\1",
  "[[:digit:]]?",
  "[]a]+",
  "[\\.]",
  "[a\\]",
  "\\(?",
  "\\\\d",
  "a{1,2}",
  "[",
])("%s is an extended regular expression", (pattern) => {
  expect(syntaxOf(pattern).perl).toBeUndefined();
});

test("word boundaries differ from Perl's", () => {
  expect(syntaxOf("\\<a\\d").extended).toBe("\\<");
});

test.each(["[[:", "[[:a", "\\", "[\\]", "(?"])("a long pattern of %s takes no time", (part) => {
  expect(processorMs(() => syntaxOf(part.repeat(300_000)))).toBeLessThan(2_000);
});
