import fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { decodePageToken, encodePageToken, pageSize } from "../../../../src/rpc/validate/page.ts";
import { codePoint } from "../../../support/code-point.ts";
import { refusal } from "./refusal.ts";

const position = z.strictObject({ afterMs: z.number(), id: z.string() });

test.each([
  [0, 50],
  [1, 1],
  [1000, 1000],
  [1001, 1000],
  [2 ** 31 - 1, 1000],
])("a page size of %d means %d", (asked, given) => {
  expect(pageSize(asked)).toBe(given);
});

test("refuses a negative page size", () => {
  expect(refusal(() => pageSize(-1))).toBe("page_size: must not be negative");
});

test("the first page has no token", () => {
  expect(decodePageToken("", position)).toBeUndefined();
});

test("a token contains the position it was created from", () => {
  fc.assert(
    fc.property(fc.integer(), fc.string({ unit: "grapheme", maxLength: 100 }), (afterMs, id) => {
      const token = encodePageToken({ afterMs, id });
      expect(token).toMatch(/^[\w-]+$/);
      expect(decodePageToken(token, position)).toEqual({ afterMs, id });
    }),
  );
});

test.each(["x", "!!!", "e30", "bnVsbA", "W10", encodePageToken({ afterMs: "1", id: "a" }), "A".repeat(5000)])(
  "refuses the token %j",
  (token) => {
    expect(refusal(() => decodePageToken(token, position))).toMatch(/^page_token: .*next_page_token/);
  },
);

test("refuses any other token, and throws nothing else", () => {
  fc.assert(
    fc.property(fc.string({ unit: codePoint, minLength: 1 }), (token) => {
      expect(refusal(() => decodePageToken(token, position))).toBeDefined();
    }),
  );
});
