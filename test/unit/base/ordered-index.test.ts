import fc from "fast-check";
import { expect, test } from "vitest";
import { OrderedIndex, type Position, WHOLE } from "../../../src/base/ordered-index.ts";

const position = fc.record({ at: fc.integer({ min: 0, max: 20 }), id: fc.constantFrom("a", "b", "c") });
const asNumber = ({ at, id }: Position): number => at * 10 + id.charCodeAt(0);
const newestFirst = (items: readonly Position[]): Position[] =>
  items.toSorted((a, b) => asNumber(b) - asNumber(a));

test("pages of a list that changes meanwhile show each element that stays exactly once, in order", () => {
  const changes = fc.array(fc.array(position, { maxLength: 10 }), { maxLength: 10 });
  fc.assert(
    fc.property(changes, fc.integer({ min: 1, max: 5 }), (rounds, limit) => {
      const index = new OrderedIndex<Position>((item) => item);
      const there = new Map<number, Position>();
      const stayed = new Set<number>();
      const shown: Position[] = [];
      let after: Position | undefined;
      // Each change adds a missing element, or removes an existing one.
      const toggle = (item: Position): void => {
        const known = there.get(asNumber(item));
        stayed.delete(asNumber(item));
        if (known === undefined) {
          there.set(asNumber(item), item);
          index.add("key", item);
        } else {
          there.delete(asNumber(item));
          index.delete("key", known);
        }
      };
      for (const item of rounds[0] ?? []) toggle(item);
      for (const number of there.keys()) stayed.add(number);
      for (let round = 1; ; round++) {
        const { items, next } = index.slice("key", { limit, after });
        const wanted = newestFirst([...there.values()]).filter(
          (item) => after === undefined || asNumber(item) < asNumber(after),
        );
        expect(items).toEqual(wanted.slice(0, limit));
        expect(next).toEqual(wanted.length > limit ? items.at(-1) : undefined);
        shown.push(...items);
        if (next === undefined) break;
        after = next;
        for (const item of rounds[round] ?? []) toggle(item);
      }
      expect(shown).toEqual(newestFirst(shown));
      expect(new Set(shown.map(asNumber)).size).toBe(shown.length);
      for (const number of stayed) expect(shown.map(asNumber)).toContain(number);
      expect(index.slice("key", WHOLE).items).toEqual(newestFirst([...there.values()]));
    }),
  );
});

test("a part continues from a position whose element is gone", () => {
  const index = new OrderedIndex<Position>((item) => item);
  const items = [1, 2, 3, 4].map((at) => ({ at, id: "x" }));
  for (const item of items) index.add("key", item);
  const { next } = index.slice("key", { limit: 2 });
  index.delete("key", items[2] as Position);
  expect(index.slice("key", { limit: 2, after: next }).items).toEqual([items[1], items[0]]);
});

test("an element is replaced in its place, if it is there", () => {
  const index = new OrderedIndex<Position>((item) => item);
  const items = [1, 2, 3].map((at) => ({ at, id: "x" }));
  for (const item of items) index.add("key", item);
  const next = { at: 2, id: "x" };
  index.replace("key", items[1] as Position, next);
  index.replace("key", { at: 3, id: "x" }, { at: 3, id: "x" });
  index.replace("other", next, next);
  const all = index.slice("key", WHOLE).items;
  expect(all).toHaveLength(3);
  for (const [at, item] of [items[2], next, items[0]].entries()) expect(all[at]).toBe(item);
});

test("reading a part takes time for the part, and not for the whole list", () => {
  const looked = { at: 0 };
  const index = new OrderedIndex<{ readonly at: number }>((item) => {
    looked.at++;
    return { at: item.at, id: "" };
  });
  const costOfPage = (): number => {
    looked.at = 0;
    index.slice("key", { limit: 10, after: { at: 15, id: "" } });
    return looked.at;
  };
  for (let at = 0; at < 20; at++) index.add("key", { at });
  const few = costOfPage();
  for (let at = 20; at < 10_000; at++) index.add("key", { at });
  expect(costOfPage()).toBeLessThanOrEqual(few + 20);
  looked.at = 0;
  index.add("key", { at: 10_000 });
  expect(looked.at).toBeLessThanOrEqual(5);
});

test("a part of large elements has fewer than requested, but at least one", () => {
  const sizes = [3_000_000, 10, 1_500_000, 1_500_000, 10];
  const index = new OrderedIndex<number>(
    (at) => ({ at, id: "" }),
    (at) => sizes[at] ?? 0,
  );
  for (const at of sizes.keys()) index.add("a", at);
  const first = index.slice("a", { limit: 10 });
  expect(first).toEqual({ items: [4, 3, 2], next: { at: 2, id: "" } });
  expect(index.slice("a", { limit: 10, after: first.next })).toEqual({ items: [1, 0], next: undefined });
  expect(index.slice("a", WHOLE).items).toHaveLength(5);
});
