import { expect, test } from "vitest";
import { CircuitBreaker } from "../../../../src/engine/docker/circuit-breaker.ts";

function breakerAt0() {
  const clock = { ms: 0 };
  return { clock, breaker: new CircuitBreaker(() => clock.ms) };
}

test("a failure is retried after pauses that double up to five minutes", () => {
  const { clock, breaker } = breakerAt0();
  const pauses: (number | undefined)[] = [];
  for (let i = 0; i < 12; i++) {
    const pause = breaker.begin()?.fail();
    pauses.push(pause);
    expect(breaker.open).toBe(true);
    clock.ms += (pause ?? 0) - 1;
    expect(breaker.begin()).toBeUndefined();
    clock.ms += 1;
  }
  expect(pauses).toEqual([...[1, 2, 4, 8, 16, 32, 64, 128, 256].map((s) => s * 1000), 3e5, 3e5, 3e5]);
  breaker.begin()?.succeed();
  expect(breaker.open).toBe(false);
  expect(breaker.begin()?.fail()).toBe(1000);
});

test("after a pause one attempt is allowed, and another when the first is canceled", () => {
  const { clock, breaker } = breakerAt0();
  breaker.begin()?.fail();
  clock.ms = 1000;
  const probe = breaker.begin();
  expect(breaker.begin()).toBeUndefined();
  probe?.cancel();
  expect(probe?.fail()).toBeUndefined();
  const next = breaker.begin();
  next?.succeed();
  next?.cancel();
  expect(breaker.open).toBe(false);
});

test("of concurrent failures only one counts, and a success meanwhile closes the breaker", () => {
  const { breaker } = breakerAt0();
  const attempts = Array.from({ length: 4 }, () => breaker.begin());
  expect(attempts.slice(0, 3).map((attempt) => attempt?.fail())).toEqual([1000, undefined, undefined]);
  attempts[3]?.succeed();
  expect(breaker.begin()).toBeDefined();
});
