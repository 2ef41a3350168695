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

test("without memory for more it keeps the head and tail that it has, and says exactly what is missing", () => {
  const SMALL = 16 * 1024;
  const bytes = Buffer.from(Array.from({ length: 400_000 }, (_, index) => (index * 7919) % 251));
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 40_000 }), { maxLength: 10 }),
      fc.integer({ min: 100_000, max: 300_000 }),
      fc.integer({ min: 0, max: 200_000 }),
      fc.option(fc.integer({ min: 0, max: 9 })),
      (sizes, limit, memory, skipAt) => {
        let left = memory;
        const kept = new HeadAndTail(limit, (wanted) => {
          if (wanted > left) return false;
          left -= wanted;
          return true;
        });
        let written = 0;
        let lost = 0;
        for (const [index, size] of sizes.entries()) {
          if (index === skipAt) {
            kept.skip(10);
            lost = written + 10;
            written += 10;
          }
          kept.append(bytes.subarray(written, written + size));
          written += size;
        }
        const { data, gap } = kept.result();
        expect(data.length).toBeLessThanOrEqual(memory - left + 4 * SMALL);
        if (gap === undefined) {
          expect(data.equals(bytes.subarray(0, written))).toBe(true);
          return;
        }
        const whole = [bytes.subarray(0, gap.from), bytes.subarray(gap.to, written)];
        expect(data.equals(Buffer.concat(whole))).toBe(true);
        expect(gap.to).toBeGreaterThanOrEqual(lost);
        if (lost === 0) {
          expect(data.length).toBeGreaterThanOrEqual(Math.min(written, SMALL));
          expect(written - gap.to).toBeGreaterThanOrEqual(SMALL / 2);
        }
      },
    ),
    { numRuns: 1000 },
  );
});

test("a tail for which there is no more memory goes on with what it has", () => {
  const bytes = Buffer.from(Array.from({ length: 250_000 }, (_, index) => (index * 7919) % 251));
  let left = 130_000;
  const kept = new HeadAndTail(200_000, (wanted) => {
    left -= wanted;
    return left >= 0;
  });
  for (const [from, to] of [
    [0, 120_000],
    [120_000, 140_000],
    [140_000, 250_000],
  ])
    kept.append(bytes.subarray(from, to));
  const { data, gap } = kept.result();
  expect(gap).toEqual({ from: 100_000, to: 230_000 });
  expect(data.equals(Buffer.concat([bytes.subarray(0, 100_000), bytes.subarray(230_000)]))).toBe(true);
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
