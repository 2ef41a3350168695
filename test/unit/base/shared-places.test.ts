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
