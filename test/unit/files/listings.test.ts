import fc from "fast-check";
import { expect, test } from "vitest";
import { SmallestNames } from "../../../src/files/listings.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

const name = fc.string({ unit: fc.constantFrom("a", "b", "\n", "-", "\xff"), minLength: 1, maxLength: 4 });

test("returns what sorting all names would, however the output is split", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(name, { maxLength: 60 }),
      fc.option(name, { nil: undefined }),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 9 }),
      (names, after, count, cut) => {
        const smallest = new SmallestNames(after, 1_000_000);
        const output = names.map((each) => `./${each}\0`).join("");
        for (let at = 0; at < output.length; at += cut) smallest.push(output.slice(at, at + cut));
        const wanted = names.filter((each) => after === undefined || each > after).sort();
        const found: string[] = [];
        for (let page = smallest.take(count); page.length > 0; page = smallest.take(count))
          found.push(...page);
        expect(found).toEqual(wanted);
        expect([smallest.bytes, smallest.isCut, smallest.has(1)]).toEqual([0, false, false]);
      },
    ),
  );
});

test("beyond its memory limit it keeps the first names, and reports that there are more", () => {
  const all = Array.from({ length: 50_000 }, (_, index) => `name-${(index * 7919) % 50_000}`);
  const wanted = all.toSorted();
  const most = 250_000;
  let after: string | undefined;
  let reads = 0;
  const found: string[] = [];
  for (let isCut = true; isCut; reads++) {
    const smallest = new SmallestNames(after, most);
    for (const each of all) smallest.push(`./${each}\0`);
    const kept = smallest.take(all.length);
    expect(kept.length).toBeGreaterThan(1000);
    expect(kept.length * 37).toBeLessThan(most);
    found.push(...kept);
    ({ isCut } = smallest);
    after = found.at(-1);
  }
  expect(found).toEqual(wanted);
  expect(reads).toBeLessThan(30);
});

test("a name that a tool prints twice is returned once", () => {
  const smallest = new SmallestNames(undefined, 1_000);
  smallest.push("./b\0./a\0./b\0");
  expect(smallest.take(10)).toEqual(["a", "b"]);
});

test("endless output without the end of a name is not kept", () => {
  const smallest = new SmallestNames(undefined, 10);
  expect(() => {
    for (let count = 0; count < 100; count++) smallest.push("x".repeat(100));
  }).toThrow("find");
});

test("names that were taken are not kept", async () => {
  const before = await keptBytes();
  const names = new SmallestNames(undefined, 64 << 20);
  for (let part = 0; part < 100; part++) {
    const paths = Array.from({ length: 1000 }, (_, index) => `./${"n".repeat(200)}${part}-${index}\0`);
    names.push(paths.join(""));
  }
  expect(names.take(99_990)).toHaveLength(99_990);
  expect((await keptBytes()) - before).toBeLessThan(3_000_000);
  expect(names.take(20)).toHaveLength(10);
});
