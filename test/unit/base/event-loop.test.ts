import { expect, test } from "vitest";
import { turnOver } from "../../../src/base/event-loop.ts";

/** Works for `ms` in pieces of half a millisecond, all of which are there already. */
async function work(ms: number): Promise<void> {
  for (const end = performance.now() + ms; performance.now() < end; ) {
    for (const piece = performance.now() + 0.5; performance.now() < piece; );
    await turnOver();
  }
}

test("streams that have all they need leave the event loop to others, however many there are", async () => {
  let turns = 0;
  let over = false;
  const count = (): void => {
    turns++;
    if (!over) setImmediate(count);
  };
  setImmediate(count);
  await Promise.all([work(100), work(100), work(100)]);
  over = true;
  // A turn has 5 ms of such work; a loaded machine adds to it what others take.
  expect(turns).toBeGreaterThan(4);
});
