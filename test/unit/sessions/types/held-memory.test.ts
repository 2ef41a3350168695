import { expect, test } from "vitest";
import { HeldMemory } from "../../../../src/sessions/types/held-memory.ts";

test("beyond the limit, the owner with most loses what has grown least recently", async () => {
  const memory = new HeldMemory(100);
  const dropped: string[] = [];
  const programOf = (owner: string, name: string) => {
    const drop = () => void dropped.push(name);
    return (bytes: number) => memory.hold(owner, drop, bytes);
  };
  const [a1, a2, b] = [programOf("a", "a1"), programOf("a", "a2"), programOf("b", "b")];
  b(30);
  a1(10);
  a2(30);
  a1(40);
  expect(dropped).toEqual([]);
  b(40);
  await Promise.resolve();
  expect(dropped).toEqual(["a2"]);
  // What is finished takes no room.
  a1(0);
  a2(60);
  await Promise.resolve();
  expect(dropped).toEqual(["a2"]);
});
