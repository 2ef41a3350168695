import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { Capacity } from "../../../src/sandboxes/capacity.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";

const never = new AbortController().signal;
const FULL = { reason: "SANDBOX_LIMIT" };

function newCapacity(limit: number) {
  const clock = new ManualClock();
  return { clock, capacity: new Capacity(limit, clock) };
}

test("a place that is released several times counts once", async () => {
  const { capacity } = newCapacity(1);
  const place = await capacity.reserve(never);
  await expect(capacity.reserve(never)).rejects.toMatchObject(FULL);
  place.release();
  place.release();
  expect(capacity.taken).toBe(0);
});

test("as many creates wait as places are being released, in order, and the limit is never exceeded", async () => {
  const { capacity } = newCapacity(2);
  const [one, two] = [await capacity.reserve(never), await capacity.reserve(never)];
  one.leave();
  one.leave();
  two.leave();
  const order: string[] = [];
  const waiting = ["a", "b"].map((name) =>
    capacity.reserve(never).then((place) => {
      order.push(name);
      return place;
    }),
  );
  await expect(capacity.reserve(never)).rejects.toMatchObject(FULL);
  await settled();
  expect(order).toEqual([]);
  two.release();
  await settled();
  expect([order, capacity.taken]).toEqual([["a"], 2]);
  one.release();
  const places = await Promise.all(waiting);
  expect([order, capacity.taken]).toEqual([["a", "b"], 2]);
  await expect(capacity.reserve(never)).rejects.toMatchObject(FULL);
  for (const place of places) place.release();
  expect(capacity.taken).toBe(0);
});

test("a waiting create is refused if the removal fails or takes too long, or the service stops, and it may give up", async () => {
  const { capacity, clock } = newCapacity(1);
  const place = await capacity.reserve(never);
  const wait = (signal = never): Promise<unknown> => {
    place.leave();
    return capacity.reserve(signal);
  };
  const failed = wait();
  place.stay();
  await expect(failed).rejects.toMatchObject(FULL);

  const late = wait();
  late.catch(() => {});
  await clock.advance(10_000);
  await expect(late).rejects.toMatchObject(FULL);

  const leaving = new AbortController();
  const left = wait(leaving.signal);
  leaving.abort();
  await expect(left).rejects.toMatchObject({ reason: "CANCELED" });

  const stopped = wait();
  capacity.close(new BerthError("SHUTTING_DOWN", "on purpose"));
  await expect(stopped).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  place.release();
  expect(capacity.taken).toBe(0);
});

test("a sandbox beyond the limit passes its place to nobody", async () => {
  const { capacity } = newCapacity(1);
  const [one, two] = [capacity.recover(), capacity.recover()];
  one.leave();
  const next = capacity.reserve(never);
  one.release();
  await settled();
  expect(capacity.taken).toBe(1);
  two.leave();
  two.release();
  await next;
  expect(capacity.taken).toBe(1);
});
