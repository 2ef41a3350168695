import { expect } from "vitest";

/**
 * Fails unless a cell like `in 59m 3s` shows what is left of a time that began to run after `begin`, a value of
 * `performance.now()`.
 */
export function expectRemaining(cell: string | undefined, seconds: number, begin: number): void {
  const passed = (performance.now() - begin) / 1000;
  const [, minutes, rest] = /^in (?:(\d+)m)? ?(?:(\d+)s)?$/.exec(cell ?? "") ?? [];
  const left = 60 * Number(minutes ?? 0) + Number(rest ?? 0);
  expect(left, cell).toBeLessThan(seconds);
  // It is shown in whole seconds.
  expect(left, cell).toBeGreaterThan(seconds - passed - 1);
}
