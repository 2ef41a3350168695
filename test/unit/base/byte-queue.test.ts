import { expect, test } from "vitest";
import { ByteQueue } from "../../../src/base/byte-queue.ts";
import { processorMs } from "../../support/measure.ts";

test("bytes come out as they went in, in pieces of any size", () => {
  const all = Buffer.from(Array.from({ length: 30_000 }, (_, index) => index % 251));
  const sizes = [1, 1, 3, 4095, 1, 4096, 2, 5000, 1, 1, 700, 0, 4000];
  const pending = new ByteQueue();
  const taken: Buffer[] = [];
  for (let at = 0, round = 0; at < all.length; round++) {
    const size = sizes[round % sizes.length] ?? 1;
    pending.push(all.subarray(at, at + size));
    at += size;
    const wanted = (round * 37) % 1500;
    if (pending.size >= wanted) taken.push(pending.take(wanted));
  }
  expect(pending.peek(pending.size + 1)).toBeUndefined();
  taken.push(pending.take(pending.size));
  expect(Buffer.concat(taken).equals(all)).toBe(true);
  expect(pending.size).toBe(0);
});

test("a message in pieces of one byte takes almost no time, and no memory per piece", () => {
  const pending = new ByteQueue();
  const cost = processorMs(() => {
    for (let count = 0; count < 100_000; count++) {
      pending.push(Buffer.from([count % 7]));
      pending.peek(5);
    }
  });
  expect(cost).toBeLessThan(3_000);
  expect(pending.take(100_000).subarray(-3)).toEqual(
    Buffer.from([2, 3, 4].map((rest) => (rest + 99_995) % 7)),
  );
});
