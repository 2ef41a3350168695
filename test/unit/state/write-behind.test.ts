import { expect, test } from "vitest";
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
