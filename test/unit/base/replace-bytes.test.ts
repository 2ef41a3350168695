import fc from "fast-check";
import { expect, test } from "vitest";
import { findAll, replaceAt } from "../../../src/base/replace-bytes.ts";

const { signal } = new AbortController();

test("agrees with string replacement", async () => {
  const text = fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(
      text,
      fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 4 }),
      text,
      async (before, old, by) => {
        const places = await findAll(Buffer.from(before), Buffer.from(old), 1000, signal);
        const after = await replaceAt(Buffer.from(before), places, old.length, Buffer.from(by), signal);
        expect(after.toString()).toBe(before.replaceAll(old, by));
      },
    ),
    { numRuns: 300 },
  );
});

test("of too many matches only one more than wanted is found", async () => {
  expect(await findAll(Buffer.alloc(100, "a"), Buffer.from("a"), 10, signal)).toHaveLength(11);
});
