import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { TurnShare } from "../../../src/base/turn-share.ts";
import { Snapshot } from "../../../src/files/watch.ts";

const ROOT = "41ed 4096 0 0 1 2026-01-01 00:00:00.0 +0000";

const isHidden = (name: string): boolean => name.startsWith("hidden");

const turns = new TurnShare();

async function scan(files: Record<string, string>, last?: Snapshot) {
  const records = Object.entries({ ".": ROOT, ...files }).map(
    ([name, line]) => `//${line}//${name === "." ? name : `./${name}`}\n`,
  );
  const parsed = await Snapshot.parse(records.join(""), { isHidden, turns }, last);
  if (parsed === undefined) throw new Error("too many files");
  return parsed;
}

async function snapshot(files: Record<string, string>): Promise<Snapshot> {
  return (await scan(files)).snapshot;
}

async function changes(before: Snapshot, files: Record<string, string>) {
  return (await scan(files, before)).changes;
}

function file(
  inode: number,
  more: { mode?: string; size?: number; uid?: number; time?: string } = {},
): string {
  const { mode = "81a4", size = 1, uid = 0, time = "00:00:00.0" } = more;
  return `${mode} ${size} ${uid} 0 ${inode} 2026-01-01 ${time} +0000`;
}

test("reports new, changed and removed files, removed ones first", async () => {
  const before = await snapshot({ same: file(2), content: file(3), gone: file(4), "z/deep": file(5) });
  const after = { same: file(2), content: file(3, { size: 2 }), new: file(6) };
  expect((await changes(before, after)).map(({ type, name }) => `${type} ${name}`)).toEqual([
    "REMOVED gone",
    "REMOVED z/deep",
    "MODIFIED content",
    "CREATED new",
  ]);
});

test.each([
  ["mode", file(2, { mode: "8180" })],
  ["owner", file(2, { uid: 5 })],
  ["time", file(2, { time: "00:00:01.0" })],
  ["file behind the name", file(3)],
])("another %s is a modification", async (_, line) => {
  const before = await snapshot({ a: file(2) });
  expect(await changes(before, { a: line })).toEqual([{ type: "MODIFIED", name: "a", line }]);
});

test("a change of a file's kind is reported as removed and created", async () => {
  const before = await snapshot({ a: file(2) });
  const after = { a: file(2, { mode: "41ed" }) };
  expect((await changes(before, after)).map(({ type }) => type)).toEqual(["REMOVED", "CREATED"]);
});

test("the time and size of a directory are ignored", async () => {
  const before = await snapshot({ d: file(2, { mode: "41ed" }) });
  const touched = file(2, { mode: "41ed", time: "00:00:09.0", size: 8192 });
  expect(await changes(before, { d: touched })).toEqual([]);
  expect(await changes(before, { d: file(2, { mode: "41c0" }) })).toHaveLength(1);
});

test("the directory itself is not an entry", async () => {
  const before = await snapshot({});
  expect(before.size).toBe(0);
  expect(before.inode).toBe("1");
  expect((await snapshot({ a: file(9) })).size).toBe(1);
});

test("hidden files are neither counted nor reported", async () => {
  const before = await snapshot({ a: file(2) });
  const after = await scan({ a: file(2), hidden: file(3), b: file(4) }, before);
  expect(after.snapshot.size).toBe(2);
  expect(after.changes).toMatchObject([{ type: "CREATED", name: "b" }]);
});

test("many changes are in order too", async () => {
  const names = Array.from({ length: 10_000 }, (_, index) => `f${(index * 7919) % 10_007}`);
  const before = await snapshot({ gone: file(2), a: file(3) });
  const found = await changes(before, Object.fromEntries(names.map((name) => [name, file(4)])));
  expect(found.slice(0, 2).map(({ name }) => name)).toEqual(["a", "gone"]);
  expect(found.slice(2).map(({ name }) => name)).toEqual(names.toSorted());
});

test("what did not change is the same snapshot", async () => {
  const before = await snapshot({ a: file(2) });
  expect(await scan({ a: file(2) }, before)).toEqual({ snapshot: before, changes: [] });
});

test("between two looks only names and marks stay in memory, as much as is counted", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const heapBytes = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = heapBytes();
  const files = (): Record<string, string> =>
    Object.fromEntries(
      Array.from({ length: 20_000 }, (_, index) => [`${index}`.padStart(40, "x"), file(index).padEnd(250)]),
    );
  const kept = await snapshot(files());
  // The engine remembers what a regular expression last looked at.
  expect("").toMatch(/^$/);
  expect(heapBytes() - before).toBeLessThan(1.5 * kept.bytes);
  expect(kept.bytes).toBeLessThan(4 * 2 ** 20);
});

test("too many files are not parsed completely", async () => {
  const record = (index: number): string => `//${file(2)}//./f${index}\n`;
  const text = Array.from({ length: 100_010 }, (_, index) => record(index)).join("");
  expect(await Snapshot.parse(`${text}no record`, { isHidden, turns })).toBeUndefined();
});
