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
