import fc from "fast-check";
import { expect, test } from "vitest";
import { integer, optionalInteger } from "../../../../src/rpc/validate/fields.ts";
import { refusal } from "./refusal.ts";

test("names the field and the limit", () => {
  expect(refusal(() => integer("spec.resources.memory_bytes", 5n, { min: 6 }))).toBe(
    "spec.resources.memory_bytes: is 5; it must be at least 6",
  );
  expect(refusal(() => integer("offset", 8n, { min: 0, max: 7 }))).toBe("offset: is 8; it must be at most 7");
});

test("refuses what a number cannot represent exactly", () => {
  expect(integer("offset", BigInt(Number.MAX_SAFE_INTEGER), { min: 0 })).toBe(Number.MAX_SAFE_INTEGER);
  expect(refusal(() => integer("offset", BigInt(Number.MAX_SAFE_INTEGER) + 1n, { min: 0 }))).toMatch(
    /at most/,
  );
});

test("optionalInteger treats only 0 as unset", () => {
  expect(optionalInteger("limit", 0n, { min: 10 })).toBeUndefined();
  expect(optionalInteger("limit", 0, { min: 10 })).toBeUndefined();
  expect(optionalInteger("limit", 10n, { min: 10 })).toBe(10);
  expect(refusal(() => optionalInteger("limit", 9n, { min: 10 }))).toMatch(/at least 10/);
});

test("accepts exactly the integers in range, unchanged", () => {
  const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
  const bound = fc.maxSafeInteger();
  fc.assert(
    fc.property(fc.oneof(int64, bound.map(BigInt)), bound, bound, (value, a, b) => {
      const [min, max] = a < b ? [a, b] : [b, a];
      const inside = value >= BigInt(min) && value <= BigInt(max);
      let result: number | undefined;
      const refused = refusal(() => {
        result = integer("n", value, { min, max });
      });
      expect(refused === undefined).toBe(inside);
      if (inside) expect(BigInt(result ?? Number.NaN)).toBe(value);
    }),
  );
});
