import { expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";

test("a name is left behind if an earlier run of the same service generated it", () => {
  const earlier = new TemporaryNames("instance").next();
  const now = new TemporaryNames("instance");
  expect(now.isLeftBehind(earlier)).toBe(true);
  expect(now.isLeftBehind(now.next())).toBe(false);
  expect(new TemporaryNames("another").isLeftBehind(earlier)).toBe(false);
  expect([earlier, now.next()].map((name) => now.isOwn(name))).toEqual([true, true]);
  expect(new TemporaryNames("another").isOwn(earlier)).toBe(false);
});

test("paths that cannot be the service's own are not searched", () => {
  const names = new TemporaryNames("instance");
  const name = names.next();
  expect(names.hides(`${"d/".repeat(4_000)}${name}`)).toBe(true);
  expect(names.hides(`${"d/".repeat(10_000)}${name}`)).toBe(false);
});

test.each([".berth-", ".berth-cp-1", `.berth-${"0".repeat(40)}`, `.berth-${"0".repeat(32)}`, "berth"])(
  "%s is a user's file",
  (name) => {
    expect(new TemporaryNames("instance").isLeftBehind(name)).toBe(false);
    expect(new TemporaryNames("instance").isOwn(name)).toBe(false);
  },
);
