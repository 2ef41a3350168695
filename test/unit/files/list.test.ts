import { expect, test } from "vitest";
import { TurnShare } from "../../../src/base/turn-share.ts";
import { listDirectory } from "../../../src/files/list.ts";
import { Listings } from "../../../src/files/listings.ts";
import type { Operation } from "../../../src/files/operation.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const LISTS = 40;

/**
 * An operation whose answers are available at once.
 * @param flood what the sandbox's `stat` writes instead of the attributes
 */
function answered(entries: number, onNames: () => void, flood?: string): Operation {
  const names = Array.from({ length: entries }, (_, index) => `entry-${index}`);
  const found = names.map((name) => `./${name}\0`).join("");
  const recordsOf = (mode: string): string =>
    names.map((name) => `//${mode} 1 0 0 7 2026-11-25 12:00:00.0 +0000//./${name}\n`).join("");
  const op = {
    scope: "sandbox",
    memory: { take: () => true },
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
      if (!script.includes("-printf")) return flood ?? recordsOf("81a4");
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

/** Too many to be read at once with their attributes. */
const ENTRIES = 2_500;
/** As much as the attributes of some thousand entries may have. */
const FLOOD_BYTES = 10_000_000;
const ATTRIBUTES = "81a4 0 0 0 1 2026-01-01 00:00:00.";

test.each<[about: string, start: string, repeated: string, end?: string]>([
  ["records", "", `//${ATTRIBUTES}0 +0000//./entry-1\n`],
  ["nearly empty records", "", "////.\n"],
  ["digits", `//${ATTRIBUTES}`, "1", " +0000//./entry-1\n"],
  ["targets of links", `//${ATTRIBUTES}0 +0000//./entry-1\n`, "\0"],
])(
  "a list in which the sandbox's stat writes a flood of %s is refused at once",
  async (_, start, repeated, end = "") => {
    const flood = start + repeated.repeat(FLOOD_BYTES / repeated.length) + end;
    const parts = { listings: new Listings(new ManualClock()), turns: new TurnShare() };
    const op = answered(ENTRIES, () => {}, flood);
    const before = process.threadCpuUsage();
    const list = listDirectory(op, "/", { after: undefined, limit: ENTRIES }, parts);
    await expect(list).rejects.toMatchObject({ reason: "UNSUPPORTED" });
    const { user, system } = process.threadCpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(100);
  },
);
