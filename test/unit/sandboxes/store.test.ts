import { expect, test } from "vitest";
import type { FoundSandbox, StoredSandbox } from "../../../src/sandboxes/store.ts";
import { memoryStore } from "../../support/memory-store.ts";

const life = (generation: number, place: number, changes: Partial<StoredSandbox> = {}): StoredSandbox => ({
  ...{ owner: "me", sandboxId: "box", generation, place, spec: {} as never },
  phase: { state: "CREATING" },
  ...{ createTimeMs: place, createdAt: place, usedTimeMs: place, usedAt: place },
  ...changes,
});
const ended = (generation: number, place: number): StoredSandbox =>
  life(generation, place, {
    phase: { state: "TERMINATED", termination: { cause: "DELETED", message: "", timeMs: 0 }, endedAt: 0 },
  });
const facts = ({ generation, place, phase, usedAt }: FoundSandbox) => [
  generation,
  place,
  phase.state,
  usedAt,
];

test("a later sandbox with an id replaces an earlier one, and can change", () => {
  const { sandboxes } = memoryStore();
  sandboxes.put(life(1, 1));
  sandboxes.put(ended(1, 1));
  sandboxes.put({ ...life(1, 2), sandboxId: "other" });
  sandboxes.put(life(2, 3));
  sandboxes.put(ended(2, 3));
  expect(sandboxes.load().map(facts)).toEqual([
    [1, 2, "CREATING", 2],
    [2, 3, "TERMINATED", 3],
  ]);
  expect(sandboxes.lastPlace()).toBe(3);
});

test("a late write of an earlier sandbox never changes a later one with the same id", () => {
  const { sandboxes } = memoryStore();
  sandboxes.put(life(1, 1));
  sandboxes.put(life(2, 2));
  const before = sandboxes.load().map(facts);
  sandboxes.put(ended(1, 1));
  sandboxes.putUsed({ ...life(1, 1), usedAt: 99 });
  sandboxes.remove(1);
  expect(sandboxes.load().map(facts)).toEqual(before);
});

test("a sandbox that starts again with generation 1 is later than one that was forgotten", () => {
  const { sandboxes } = memoryStore();
  sandboxes.put(ended(2, 1));
  // The removal of the expired sandbox is still pending when the next one is created.
  sandboxes.put(life(1, 2));
  sandboxes.put(life(2, 3));
  sandboxes.remove(1);
  sandboxes.putUsed({ ...life(2, 1), usedAt: 99 });
  expect(sandboxes.load().map(facts)).toEqual([[2, 3, "CREATING", 3]]);
});

test("a place is never reused, even when the newest sandbox is gone", () => {
  const { sandboxes } = memoryStore();
  sandboxes.put(life(1, 7));
  sandboxes.remove(7);
  expect(sandboxes.lastPlace()).toBe(7);
});
