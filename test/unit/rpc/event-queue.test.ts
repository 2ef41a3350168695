import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { EventQueue } from "../../../src/rpc/stream.ts";

test("events come in order, and a source that is far ahead waits until half of them are read", async () => {
  const queue = new EventQueue<number>(10_000);
  let waits: Promise<void> | undefined;
  let count = 0;
  while (waits === undefined) waits = queue.push(count++, 100);
  let roomAfter: number | undefined;
  const read: number[] = [];
  void waits.then(() => {
    roomAfter = read.length;
  });
  for await (const event of queue.events()) {
    read.push(event);
    await setImmediate();
    if (read.length === count) queue.finish();
  }
  expect(read).toEqual(Array.from({ length: count }, (_, index) => index));
  expect(roomAfter).toBeGreaterThan(count * 0.4);
  expect(roomAfter).toBeLessThan(count * 0.6);
});

test("events without content count, too: a flood of them waits for its reader", () => {
  const queue = new EventQueue<number>(1024 * 1024);
  let count = 0;
  while (queue.push(count, 1) === undefined && count < 100_000) count++;
  expect(count).toBeLessThan(5_000);
});

test("a million events are read in the time of their number", async () => {
  const queue = new EventQueue<number>(Number.POSITIVE_INFINITY);
  for (let count = 0; count < 1_000_000; count++) queue.push(count);
  queue.finish();
  const before = process.threadCpuUsage();
  let count = 0;
  for await (const _ of queue.events()) count++;
  const { user, system } = process.threadCpuUsage(before);
  expect(count).toBe(1_000_000);
  // Half a second on one machine. Moving the others for each takes hours.
  expect((user + system) / 1000).toBeLessThan(10_000);
});
