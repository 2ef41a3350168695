import { expect, test } from "vitest";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";

const never = new AbortController().signal;

test("an owner takes as much as leaves a tenth free, and gets it back", () => {
  const budget = new MemoryBudget(1000, 0);
  const [one, two] = [budget.open("me", never), budget.open("me", never)];
  expect([one.take(600), two.take(301), two.take(300), one.take(1)]).toEqual([true, false, true, false]);
  expect(budget.open("another", never).take(90)).toBe(true);
  two.giveBack(200);
  expect(budget.of("me")).toBe(700);
  one.close();
  one.close();
  expect([budget.of("me"), two.take(500)]).toEqual([100, true]);
});

test("the end of a call gives back what it took, and it takes no more", () => {
  const budget = new MemoryBudget(1000, 0);
  const call = new AbortController();
  const share = budget.open("me", call.signal);
  expect(share.take(500)).toBe(true);
  call.abort();
  share.giveBack(500);
  expect([budget.of("me"), share.take(1), budget.open("me", call.signal).take(1)]).toEqual([0, false, false]);
});

test("a small call has room, whatever others have taken", () => {
  const budget = new MemoryBudget(1000, 100);
  const others = ["me", "another", "a third"].map((owner) => budget.open(owner, never));
  for (const other of others) while (other.take(1));
  const small = budget.open("me", never);
  const before = budget.of("me");
  expect([small.take(60), small.take(40), small.take(1)]).toEqual([true, true, false]);
  small.giveBack(100);
  expect(budget.of("me")).toBe(before);
});
