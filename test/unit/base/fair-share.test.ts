import fc from "fast-check";
import { expect, test } from "vitest";
import { FairShare } from "../../../src/base/fair-share.ts";

test("the oldest items of the owner with the most are removed, until everything fits", () => {
  const share = new FairShare<string>();
  for (const item of ["a1", "b1", "a2", "a3", "b2", "c1"]) share.set(item.slice(0, 1), item);
  expect([...share.beyond(6)]).toEqual([]);
  expect([...share.beyond(3)].map(({ item }) => item)).toEqual(["a1", "a2", "b1"]);
  share.delete("c", "c1");
  expect([...share.beyond(0)].map(({ item }) => item)).toEqual(["a3", "b2"]);
});

test("what counts is size, not number", () => {
  const share = new FairShare<string>();
  share.set("small", "s1", 1);
  for (let i = 0; i < 50; i++) share.set("small", `s${i}`, 1);
  share.set("large", "l1", 60);
  share.set("large", "l2", 40);
  expect([...share.beyond(100)].map(({ item }) => item)).toEqual(["l1"]);
  share.set("large", "l2", 10);
  expect([...share.beyond(59)].map(({ item }) => item)).toEqual(["s0"]);
});

test("the oldest goes first, whatever was removed or renewed before", () => {
  const change = fc.record({
    kind: fc.constantFrom("set", "set", "delete", "beyond"),
    item: fc.integer({ min: 0, max: 30 }),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), (changes) => {
      const share = new FairShare<number>();
      let there: number[] = [];
      for (const { kind, item } of changes) {
        if (kind === "beyond") {
          const removed = there.splice(0, Math.max(0, there.length - item));
          expect(Array.from(share.beyond(item), (one) => one.item)).toEqual(removed);
          continue;
        }
        there = there.filter((one) => one !== item);
        if (kind === "set") {
          there.push(item);
          share.set("owner", item);
        } else share.delete("owner", item);
      }
    }),
  );
});
