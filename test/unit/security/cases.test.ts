import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { DEFECTS } from "../../defects/all.ts";
import { SECURITY_CASES } from "../../security/cases.ts";

const TESTS = path.resolve(import.meta.dirname, "../..");
const known = new Set(DEFECTS.map(({ name }) => name));
const cases = Object.entries(SECURITY_CASES).flatMap(([area, list]) =>
  list.map((one) => ({ ...one, name: `${area}: ${one.about}` })),
);

test("cases have unique names, in every area", () => {
  expect(new Set(cases.map(({ name }) => name)).size).toBe(cases.length);
  for (const list of Object.values(SECURITY_CASES)) expect(list.length).toBeGreaterThan(0);
});

describe.each(cases)("$name", ({ tests, defects, reason }) => {
  test("is proven by tests that exist", () => {
    expect(tests.length).toBeGreaterThan(0);
    for (const { file, title, row } of tests) {
      const text = readFileSync(path.join(TESTS, file), "utf8");
      // The title may be written as a template, if part of it varies.
      expect(
        [`"${title}"`, `'${title}'`, `\`${title}\``].some((quoted) => text.includes(quoted)),
        title,
      ).toBe(true);
      if (row !== undefined) expect(text, row).toContain(JSON.stringify(row));
    }
  });

  test("was seen to fail without its defence, or says why that cannot be", () => {
    for (const name of defects) expect(known, name).toContain(name);
    if (defects.length === 0) expect(reason, "name a defect, or the reason why there is none").toMatch(/\w/);
    else expect(reason).toBeUndefined();
  });
});
