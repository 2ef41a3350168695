import { expect, test } from "vitest";
import { SystemClock } from "../../../src/base/clock.ts";
import { BerthError } from "../../../src/base/errors.ts";
import { WriteBehind } from "../../../src/state/write-behind.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { MemoryLog } from "../../support/memory-log.ts";

test("writes that a full disk refuses wait, even if another one always fails", async () => {
  const [clock, logger] = [new ManualClock(), new MemoryLog()];
  const written: string[] = [];
  let isFull = true;
  const writeBehind = new WriteBehind((work) => work(), { clock, logger });
  writeBehind.add("broken", () => {
    throw new Error("broken");
  });
  const write = (): void => {
    if (isFull) throw new BerthError("NO_SPACE", "The disk is full.");
    written.push("stored");
  };
  writeBehind.add("kept", write, () => written.push("reported"));
  await clock.advance(100);
  expect(written).toEqual([]);
  isFull = false;
  await clock.advance(1_000);
  expect(written).toEqual(["stored", "reported"]);
  expect(writeBehind.flush()).toBe(true);
  expect(logger.errors.map(({ fields }) => fields.key)).toEqual(["broken", undefined]);
});

/** Two of them take longer than writes share a transaction. */
const LONG_MS = 12;

/** Schedules so many long writes. */
function longWrites(count: number) {
  const [clock, logger] = [new SystemClock(), new MemoryLog()];
  const all = Promise.withResolvers<void>();
  const transactions: string[][] = [];
  let written = 0;
  const writeBehind = new WriteBehind(
    (work) => {
      transactions.push([]);
      return work();
    },
    { clock, logger },
  );
  for (let index = 0; index < count; index++) {
    const write = (): void => {
      for (const end = performance.now() + LONG_MS; performance.now() < end; );
      transactions.at(-1)?.push(`write ${index}`);
    };
    writeBehind.add(`write ${index}`, write, () => ++written === count && all.resolve());
  }
  return { writeBehind, transactions, written: all.promise };
}

test("many long writes leave turns of the event loop between them", async () => {
  const { transactions, written } = longWrites(10);
  const turns: number[] = [];
  const look = (): void => {
    if (turns.at(-1) !== transactions.length) turns.push(transactions.length);
  };
  const timer = setInterval(look, 1);
  await written;
  clearInterval(timer);
  expect(transactions.flat()).toEqual(Array.from({ length: 10 }, (_, index) => `write ${index}`));
  for (const writes of transactions) expect(writes.length).toBeLessThanOrEqual(2);
  // The interval had turns between most of them.
  expect(turns.length).toBeGreaterThan(3);
});

test("everything that is pending can be written at once, and so can the write of one key", () => {
  const { writeBehind, transactions } = longWrites(5);
  writeBehind.flushOne("write 3");
  expect(transactions).toEqual([["write 3"]]);
  expect(writeBehind.flush()).toBe(true);
  expect(transactions.flat()).toEqual(["write 3", "write 0", "write 1", "write 2", "write 4"]);
  expect(writeBehind.flush()).toBe(true);
  expect(transactions.flat()).toHaveLength(5);
});

test("everything that is pending is tried although the database cannot be written", () => {
  const [clock, logger] = [new ManualClock(), new MemoryLog()];
  const broken = (): never => {
    throw new Error("broken");
  };
  const writeBehind = new WriteBehind(broken, { clock, logger });
  for (const key of ["one", "other"]) writeBehind.add(key, () => {});
  expect(writeBehind.flush()).toBe(false);
  expect(logger.errors.map(({ fields }) => fields.key)).toEqual(["one", "other"]);
  expect(writeBehind.flush()).toBe(true);
});
