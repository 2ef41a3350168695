import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { DEFECTS } from "../../defects/all.ts";

// `npm run test:defects` takes minutes, so these quick tests keep its list valid.
const ROOT = path.resolve(import.meta.dirname, "../../..");
const read = (file: string): string => readFileSync(path.join(ROOT, file), "utf8");
/** Reads a test file, with the suites that it runs. */
const readTests = (file: string): string => {
  const text = read(file);
  const suites = [...text.matchAll(/from "\.\/([\w-]+-suite\.ts)"/g)].map(([, name = ""]) => name);
  return [text, ...suites.map((name) => read(path.join(path.dirname(file), name)))].join("\n");
};

test("defects have unique names", () => {
  const names = DEFECTS.map(({ name }) => name);
  expect(names.length).toBeGreaterThan(0);
  expect(new Set(names).size).toBe(names.length);
});

describe.each(DEFECTS)("$name", ({ changes, test: { file, title } }) => {
  test.each(changes)("can be put back into $file", ({ file: changed, from, to }) => {
    const parts = read(changed).split(from);
    expect(parts).toHaveLength(2);
    expect(to).not.toBe(from);
    // A source that does not parse would fail every test.
    if (changed.endsWith(".ts")) stripTypeScriptTypes(parts.join(to));
  });

  test("has a test that would detect it", () => {
    expect(readTests(file).split(JSON.stringify(title))).toHaveLength(2);
  });
});
