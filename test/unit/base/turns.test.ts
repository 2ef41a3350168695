import { expect, test } from "vitest";
import { Turns } from "../../../src/base/turns.ts";

/** Takes turns that end when the test says so. */
function take(turns: Turns, count: number) {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const drops = Array.from({ length: count }, (_, i) =>
    turns.take(() => {
      begun.push(i);
      return new Promise<void>((resolve) => ends.push(resolve));
    }),
  );
  return { begun, ends, drops };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a limited number starts at once; the rest in order, each when another has ended", async () => {
  const { begun, ends } = take(new Turns(2), 5);
  expect(begun).toEqual([0, 1]);
  ends[1]?.();
  await settled();
  expect(begun).toEqual([0, 1, 2]);
  for (const end of ends) end();
  await settled();
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

test("a canceled turn passes to the next", async () => {
  const { begun, ends, drops } = take(new Turns(1), 3);
  drops[1]?.();
  ends[0]?.();
  await settled();
  expect(begun).toEqual([0, 2]);
});

test("work waits for its turn, or for its caller to leave", async () => {
  const turns = new Turns(1);
  const first = Promise.withResolvers<string>();
  const one = turns.run(() => first.promise);
  const leaves = new AbortController();
  let begun = 0;
  const other = turns.run(async () => ++begun, leaves.signal);
  const last = turns.run(async () => "last");
  leaves.abort(new Error("left"));
  await expect(other).rejects.toThrow("canceled");
  first.resolve("first");
  expect([await one, await last, begun]).toEqual(["first", "last", 0]);
  await expect(turns.run(() => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
  expect(await turns.run(async () => "free again")).toBe("free again");
});
