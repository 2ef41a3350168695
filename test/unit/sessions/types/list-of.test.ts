import { expect, test } from "vitest";
import { z } from "zod";
import { listOf } from "../../../../src/sessions/types/common.ts";

test("a list takes items of its form, and nothing else", () => {
  const list = listOf(z.number());
  expect(list.parse([1, 2])).toEqual([1, 2]);
  for (const given of [undefined, {}, ["1"], [1, null]]) expect(list.safeParse(given).success).toBe(false);
  expect(list.catch([]).parse([1, "2"])).toEqual([]);
});

test("a list is checked up to its first wrong item, however many follow", () => {
  let checked = 0;
  const item = z.custom<number>((given) => ++checked > 0 && given !== 0);
  expect(listOf(item).safeParse([1, 1, ...Array(100_000).fill(0)]).success).toBe(false);
  expect(checked).toBe(3);
});
