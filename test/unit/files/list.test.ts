import { expect, test } from "vitest";
import { TurnShare } from "../../../src/base/turn-share.ts";
import { listDirectory } from "../../../src/files/list.ts";
import { Listings } from "../../../src/files/listings.ts";
import type { Operation } from "../../../src/files/operation.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const LISTS = 40;

/** An operation whose answers are available at once. */
function answered(entries: number, onNames: () => void): Operation {
  const names = Array.from({ length: entries }, (_, index) => `entry-${index}`);
  const found = names.map((name) => `./${name}\0`).join("");
  const recordsOf = (mode: string): string =>
    names.map((name) => `//${mode} 1 0 0 7 2026-11-25 12:00:00.0 +0000//./${name}\n`).join("");
  const op = {
    scope: "sandbox",
    isTemporary(name: string) {
      if (name === names[0]) onNames();
      return false;
    },
    start: async () => {
      const chunks = [Buffer.from(found)];
      return { read: async () => chunks.shift() };
    },
    temporaryName: () => "nonce",
    succeedBarVanished: async () => {},
    run: async (script: string) => {
      if (!script.includes("-printf")) return recordsOf("81a4");
      return `${recordsOf("f 644")}\0nonce`.slice(0, 128 * 1024);
    },
  };
  return op as unknown as Operation;
}

test.each([
  ["small", 1_000],
  ["large", 2_000],
])(
  "lists of %s directories, whose answers are available at once, do not block the event loop",
  async (_, size) => {
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
        const op = answered(size, () => {
          counts.named++;
          for (const end = performance.now() + 0.5; performance.now() < end; );
        });
        const page = await listDirectory(op, "/long", { after: undefined, limit: size }, parts);
        counts.done++;
        return page;
      }),
    );
    look();
    for (const { entries } of pages) expect(entries).toHaveLength(size);
    // A turn contains 5 ms of such work.
    for (const totals of Object.values(perTurn)) {
      const most = Math.max(...totals.map((total, index) => total - (totals[index - 1] ?? 0)));
      expect(most).toBeLessThanOrEqual(12);
    }
  },
);
