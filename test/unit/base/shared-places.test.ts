import { expect, test } from "vitest";
import { SharedPlaces } from "../../../src/base/shared-places.ts";

/** The number of places that an owner can take. */
function fill(places: SharedPlaces, owner: string): number {
  let taken = 0;
  for (; places.hasRoomFor(owner); taken++) places.take(owner);
  return taken;
}

test("one owner can take nine tenths, and each later one still finds a place", () => {
  const places = new SharedPlaces(100);
  expect(fill(places, "first")).toBe(90);
  expect(fill(places, "second")).toBe(9);
  expect(places.free).toBe(1);
  expect(fill(places, "third")).toBe(1);
  expect(fill(places, "fourth")).toBe(0);
});

test("an owner takes several places if it could take the last of them", () => {
  const places = new SharedPlaces(100);
  expect([90, 91].map((count) => places.hasRoomFor("a", count))).toEqual([true, false]);
  places.take("a", 80);
  expect([10, 11].map((count) => places.hasRoomFor("a", count))).toEqual([true, false]);
  expect([18, 19].map((count) => places.hasRoomFor("b", count))).toEqual([true, false]);
  places.giveBack("a", 80);
  expect([places.of("a"), places.free]).toEqual([0, 100]);
});

test("a released place can be taken again", () => {
  const places = new SharedPlaces(10);
  expect(fill(places, "a")).toBe(9);
  places.giveBack("a");
  expect(places.of("a")).toBe(8);
  expect(places.hasRoomFor("a")).toBe(true);
  for (let i = 0; i < 8; i++) places.giveBack("a");
  expect(places.of("a")).toBe(0);
  expect(places.free).toBe(10);
});
