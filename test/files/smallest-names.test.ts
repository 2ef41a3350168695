import fc from "fast-check";
import { expect, test } from "vitest";
import { SmallestNames } from "../../src/files/smallest-names.ts";

const name = fc.string({ unit: fc.constantFrom("a", "b", "\n", "-", "\xff"), minLength: 1, maxLength: 4 });

test("it keeps what sorting all of them would give, however the output is cut", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(name, { maxLength: 60 }),
      fc.option(name, { nil: undefined }),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 9 }),
      (names, after, count, cut) => {
        const smallest = new SmallestNames(after, count);
        const output = names.map((each) => `./${each}\0`).join("");
        for (let at = 0; at < output.length; at += cut) smallest.push(output.slice(at, at + cut));
        const wanted = names.filter((each) => after === undefined || each > after).sort();
        expect(smallest.take()).toEqual(wanted.slice(0, count));
      },
    ),
  );
});

test("output without an end of a name is not kept", () => {
  const smallest = new SmallestNames(undefined, 10);
  expect(() => {
    for (let count = 0; count < 100; count++) smallest.push("x".repeat(100));
  }).toThrow("find");
});
