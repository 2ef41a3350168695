import { expect, test } from "vitest";
import { until } from "../../../src/files/until.ts";

const forever = new Promise<never>(() => {});

test("it passes on all items of a source that ends", async () => {
  const items: number[] = [];
  for await (const item of until([1, 2, 3], forever)) items.push(item);
  expect(items).toEqual([1, 2, 3]);
});

test("it leaves a source that is stuck, and notifies it", async () => {
  const over = Promise.withResolvers<void>();
  let left = false;
  const stuck = {
    [Symbol.asyncIterator]: () => ({
      next: () => forever,
      return: async () => {
        left = true;
        return { done: true as const, value: undefined };
      },
    }),
  };
  setTimeout(over.reject, 20, new Error("over"));
  for await (const _ of until(stuck, over.promise)) throw new Error("there is no item");
  expect(left).toBe(true);
});

test("it passes on the error of the source", async () => {
  async function* failing(): AsyncGenerator<number> {
    yield 1;
    throw new Error("broken");
  }
  const reading = (async () => {
    for await (const _ of until(failing(), forever));
  })();
  await expect(reading).rejects.toThrow("broken");
});

test("it notifies a source whose item is refused", async () => {
  let left = false;
  const refused = {
    [Symbol.asyncIterator]: () => ({
      next: () => Promise.reject(new Error("refused")),
      return: async () => {
        left = true;
        return { done: true as const, value: undefined };
      },
    }),
  };
  const items = until(refused, forever);
  await expect(items.next()).rejects.toThrow("refused");
  expect(left).toBe(true);
  expect(await items.next()).toEqual({ done: true, value: undefined });
});
