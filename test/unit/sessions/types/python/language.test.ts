import { expect, test } from "vitest";
import { answerOf } from "../../../../../src/sessions/types/python/type.ts";
import { processorMs } from "../../../../support/measure.ts";

const NOTHING = { result: null, error: null, plots: [], pid: 0, pids: [] };

test("an answer is parsed", () => {
  const answer = { result: "1", error: null, plots: ["aGk="], pid: 7, pids: [1, 7] };
  expect(answerOf(Buffer.from(JSON.stringify(answer)))).toEqual(answer);
});

test("a forged answer must have the form of one, and is not parsed if it contains millions of values", () => {
  expect(answerOf(Buffer.from('{"result": [[]], "plots": [1], "error": 5, "pid": "x"}'))).toEqual(NOTHING);
  expect(answerOf(Buffer.from("[]"))).toEqual(NOTHING);
  // The driver cuts longer texts.
  expect(answerOf(Buffer.from(`{"result": "${"x".repeat(600_000)}"}`))).toEqual(NOTHING);
  const flood = Buffer.from(`{"pid": 7, "pids": [${"1,".repeat(8_000_000)}1]}`);
  expect(processorMs(() => expect(answerOf(flood)).toEqual(NOTHING))).toBeLessThan(100);
});

test("a forged answer whose lists have another form takes hardly longer than a real one", () => {
  const parse = (item: unknown): number => {
    const payload = Buffer.from(JSON.stringify({ ...NOTHING, pids: Array(40_000).fill(item) }));
    return processorMs(() => {
      // Enough for a clock that ticks every ten milliseconds.
      for (let round = 0; round < 20; round++) answerOf(payload);
    });
  };
  const real = parse(1);
  expect(parse("")).toBeLessThan(5 * real);
});
