import { expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";

test("a name is left behind if an earlier run of the same service made it", () => {
  const earlier = new TemporaryNames("instance").next();
  const now = new TemporaryNames("instance");
  expect(now.isLeftBehind(earlier)).toBe(true);
  expect(now.isLeftBehind(now.next())).toBe(false);
  expect(new TemporaryNames("another").isLeftBehind(earlier)).toBe(false);
  expect([earlier, now.next()].map((name) => now.isOwn(name))).toEqual([true, true]);
  expect(new TemporaryNames("another").isOwn(earlier)).toBe(false);
});

test.each([".berth-", ".berth-cp-1", `.berth-${"0".repeat(40)}`, `.berth-${"0".repeat(32)}`, "berth"])(
  "%s is a user's file",
  (name) => {
    expect(new TemporaryNames("instance").isLeftBehind(name)).toBe(false);
    expect(new TemporaryNames("instance").isOwn(name)).toBe(false);
  },
);
