import fc from "fast-check";
import { expect, test } from "vitest";
import { KeyedLock } from "../../../src/base/keyed-lock.ts";
import { settled } from "../../support/manual-clock.ts";

test("one holder per key, first come, first served; keys do not wait for each other; nothing is kept", async () => {
  const action = fc.record({ key: fc.constantFrom("a", "b", "c"), steps: fc.nat(4), fails: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(
      fc.array(action, { minLength: 1, maxLength: 30 }),
      fc.scheduler(),
      async (actions, scheduler) => {
        const locks = new KeyedLock();
        const holders = new Map<string, number>();
        const order: Record<string, number[]> = { a: [], b: [], c: [] };
        const runs = actions.map(({ key, steps, fails }, index) =>
          locks.run(key, async () => {
            expect(holders.get(key)).toBeUndefined();
            holders.set(key, index);
            order[key]?.push(index);
            for (let step = 0; step < steps; step++) {
              await scheduler.schedule(Promise.resolve());
              expect(holders.get(key)).toBe(index);
            }
            holders.delete(key);
            if (fails) throw new Error("on purpose");
          }),
        );
        const outcomes = Promise.allSettled(runs);
        await scheduler.waitFor(outcomes);
        const failed = (await outcomes).map(({ status }) => status === "rejected");
        expect(failed).toEqual(actions.map(({ fails }) => fails));
        for (const key of ["a", "b", "c"]) {
          expect(order[key]).toEqual(actions.flatMap((one, index) => (one.key === key ? index : [])));
        }
        expect(locks.size).toBe(0);
      },
    ),
    { numRuns: 200 },
  );
});

test("a waiter whose signal is aborted leaves at once, and those after it keep their order", async () => {
  const locks = new KeyedLock();
  const held = Promise.withResolvers<void>();
  const holder = locks.run("k", () => held.promise);
  const leaves = new AbortController();
  const order: string[] = [];
  const enter = (name: string, signal?: AbortSignal) =>
    locks.run("k", async () => void order.push(name), signal);
  const first = enter("first");
  const canceled = enter("canceled", leaves.signal);
  const last = enter("last");
  expect(locks.usersOf("k")).toBe(4);
  leaves.abort();
  const late = enter("late", leaves.signal);
  for (const left of [canceled, late]) {
    const outcome = left.catch(({ reason }) => reason);
    expect(await Promise.race([outcome, settled()])).toBe("CANCELED");
  }
  expect(locks.usersOf("k")).toBe(3);
  held.resolve();
  await Promise.all([holder, first, last]);
  expect(order).toEqual(["first", "last"]);
  expect(locks.size).toBe(0);
});

test("a waiter for a key that is released gets the same lock as a later one", async () => {
  const locks = new KeyedLock();
  const gates = [1, 2, 3].map(() => Promise.withResolvers<void>());
  let inside = 0;
  const enter = (index: number) =>
    locks.run("k", async () => {
      expect(++inside).toBe(1);
      await gates[index]?.promise;
      inside--;
    });
  const first = enter(0);
  const second = enter(1);
  gates[0]?.resolve();
  await first;
  const third = enter(2);
  await settled();
  expect(inside).toBe(1);
  gates[1]?.resolve();
  gates[2]?.resolve();
  await Promise.all([second, third]);
  expect(locks.size).toBe(0);
});
