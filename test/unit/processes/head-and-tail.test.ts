import fc from "fast-check";
import { expect, test } from "vitest";
import { HeadAndTail } from "../../../src/processes/head-and-tail.ts";
import { processorMs } from "../../support/measure.ts";

test("returns a short stream completely, and the head and tail of a long one", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 30 }),
      fc.integer({ min: 1, max: 300 }),
      (chunks, limit) => {
        const whole = Buffer.concat(chunks);
        const kept = new HeadAndTail(limit);
        for (const chunk of chunks) kept.append(chunk);
        const { data, gap } = kept.result();
        if (whole.length <= limit) {
          expect(gap).toBeUndefined();
          expect(data.equals(whole)).toBe(true);
          return;
        }
        const head = Math.ceil(limit / 2);
        const tailFrom = whole.length - (limit - head);
        expect(gap).toEqual({ from: head, to: tailFrom });
        expect(data.equals(Buffer.concat([whole.subarray(0, head), whole.subarray(tailFrom)]))).toBe(true);
      },
    ),
    { numRuns: 1000 },
  );
});

test("counts bytes that were lost earlier", () => {
  const kept = new HeadAndTail(10);
  kept.append(Buffer.from("abc"));
  kept.skip(7);
  kept.append(Buffer.from("xyz"));
  const { data, gap } = kept.result();
  expect(data.toString()).toBe("abcxyz");
  expect(gap).toEqual({ from: 3, to: 10 });
});

test("a flood of tiny pieces takes no more time than its bytes", () => {
  const kept = new HeadAndTail(256 * 1024);
  const piece = Buffer.from("x");
  // Moving all pieces of the tail for each new one takes minutes.
  expect(
    processorMs(() => {
      for (let count = 0; count < 1_000_000; count++) kept.append(piece);
    }),
  ).toBeLessThan(2_000);
  expect(kept.result().data).toHaveLength(256 * 1024);
});
