import { expect, test } from "vitest";
import { Turns } from "../../../../src/processes/shell/turns.ts";

/** Takes turns that end when they are told to. */
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

test("so many at once, at once; the rest in their order, each when another has ended", async () => {
  const { begun, ends } = take(new Turns(2), 5);
  expect(begun).toEqual([0, 1]);
  ends[1]?.();
  await settled();
  expect(begun).toEqual([0, 1, 2]);
  for (const end of ends) end();
  await settled();
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

test("a turn that is given up is nobody's", async () => {
  const { begun, ends, drops } = take(new Turns(1), 3);
  drops[1]?.();
  ends[0]?.();
  await settled();
  expect(begun).toEqual([0, 2]);
});
