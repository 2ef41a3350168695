import fc from "fast-check";
import { expect, test } from "vitest";
import { callerId } from "../../../../src/rpc/validate/fields.ts";
import { codePoint } from "../../../support/code-point.ts";
import { refusal } from "./refusal.ts";

test.each(["a", "../../etc/passwd", "with space", "ключ", "👩‍💻", "x".repeat(256), "é".repeat(128)])(
  "takes %j as it stands",
  (id) => {
    expect(callerId("worker_id", id)).toBe(id);
  },
);

test.each([
  ["", /is required/],
  ["x".repeat(257), /257 bytes/],
  ["é".repeat(129), /258 bytes/],
  ["a\nb", /control/],
  ["a\0b", /control/],
  ["a\x7fb", /control/],
  ["a\u0085b", /control/],
  ["\ud800", /Unicode/],
])("refuses %j", (id, why) => {
  expect(refusal(() => callerId("worker_id", id))).toMatch(why);
});

test("accepts exactly 1 to 256 bytes of UTF-8 without control characters", () => {
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 300 }), (id) => {
      const good =
        id.length > 0 &&
        Buffer.from(id, "utf8").toString("utf8") === id &&
        Buffer.byteLength(id) <= 256 &&
        [...id].every((character) => {
          const code = character.codePointAt(0) ?? 0;
          return code > 0x1f && (code < 0x7f || code > 0x9f);
        });
      expect(refusal(() => callerId("worker_id", id)) === undefined).toBe(good);
    }),
  );
});
