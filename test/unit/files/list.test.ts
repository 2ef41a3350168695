import { expect, test } from "vitest";
import { TurnShare } from "../../../src/base/turn-share.ts";
import { listDirectory } from "../../../src/files/list.ts";
import { Listings } from "../../../src/files/listings.ts";
import type { Operation } from "../../../src/files/operation.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const LISTS = 40;
const ENTRIES = 2_000;
const NAMES = Array.from({ length: ENTRIES }, (_, index) => `entry-${index}`);
const FOUND = Buffer.from(NAMES.map((name) => `./${name}\0`).join(""));
const RECORDS = NAMES.map((name) => `//81a4 1 0 0 7 2026-11-25 12:00:00.0 +0000//./${name}\n`).join("");

/** An operation whose answers are available at once. */
function answered(onNames: () => void): Operation {
  const chunks = [FOUND];
  const op = {
    scope: "sandbox",
    isTemporary(name: string) {
      if (name === NAMES[0]) onNames();
      return false;
    },
    start: async () => ({ read: async () => chunks.shift() }),
    succeedBarVanished: async () => {},
    run: async () => RECORDS,
  };
  return op as unknown as Operation;
}

test("lists whose answers are available at once do not block the event loop", async () => {
  const parts = { listings: new Listings(new ManualClock()), turns: new TurnShare() };
  const counts = { named: 0, done: 0 };
  const perTurn = { named: [] as number[], done: [] as number[] };
  const look = (): void => {
    const { named, done } = counts;
    perTurn.named.push(named);
    perTurn.done.push(done);
    if (done < LISTS) setImmediate(look);
  };
  setImmediate(look);
  const pages = await Promise.all(
    Array.from({ length: LISTS }, async () => {
      const op = answered(() => {
        counts.named++;
        for (const end = performance.now() + 0.5; performance.now() < end; );
      });
      const page = await listDirectory(op, "/long", { after: undefined, limit: ENTRIES }, parts);
      counts.done++;
      return page;
    }),
  );
  look();
  for (const { entries } of pages) expect(entries).toHaveLength(ENTRIES);
  // A turn contains 5 ms of such work.
  for (const totals of Object.values(perTurn)) {
    const most = Math.max(...totals.map((total, index) => total - (totals[index - 1] ?? 0)));
    expect(most).toBeLessThanOrEqual(12);
  }
});
