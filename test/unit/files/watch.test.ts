import { expect, test } from "vitest";
import { Snapshot } from "../../../src/files/watch.ts";

const ROOT = "41ed 4096 0 0 1 2026-01-01 00:00:00.0 +0000";

const isHidden = (name: string): boolean => name.startsWith("hidden");

function snapshot(files: Record<string, string>, last?: Snapshot): Snapshot {
  const records = Object.entries({ ".": ROOT, ...files }).map(
    ([name, line]) => `//${line}//${name === "." ? name : `./${name}`}\n`,
  );
  return new Snapshot(records.join(""), isHidden, last);
}

function file(
  inode: number,
  more: { mode?: string; size?: number; uid?: number; time?: string } = {},
): string {
  const { mode = "81a4", size = 1, uid = 0, time = "00:00:00.0" } = more;
  return `${mode} ${size} ${uid} 0 ${inode} 2026-01-01 ${time} +0000`;
}

test("reports what is new, different and removed, the removed first", () => {
  const before = snapshot({ same: file(2), content: file(3), gone: file(4), "z/deep": file(5) });
  const after = snapshot({ same: file(2), content: file(3, { size: 2 }), new: file(6) }, before);
  expect(after.since(before).map(({ type, name }) => `${type} ${name}`)).toEqual([
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
])("another %s is a modification", (_, line) => {
  const before = snapshot({ a: file(2) });
  expect(snapshot({ a: line }, before).since(before)).toEqual([{ type: "MODIFIED", name: "a", line }]);
});

test("a file of another kind is one removed and one created", () => {
  const before = snapshot({ a: file(2) });
  const after = snapshot({ a: file(2, { mode: "41ed" }) }, before);
  expect(after.since(before).map(({ type }) => type)).toEqual(["REMOVED", "CREATED"]);
});

test("the time and size of a directory are ignored", () => {
  const before = snapshot({ d: file(2, { mode: "41ed" }) });
  const touched = file(2, { mode: "41ed", time: "00:00:09.0", size: 8192 });
  expect(snapshot({ d: touched }, before).since(before)).toEqual([]);
  expect(snapshot({ d: file(2, { mode: "41c0" }) }, before).since(before)).toHaveLength(1);
});

test("the directory itself is not an entry", () => {
  const before = snapshot({});
  expect(before.size).toBe(0);
  expect(before.inode).toBe("1");
  expect(snapshot({ a: file(9) }).size).toBe(1);
});

test("what is hidden neither counts nor changes", () => {
  const before = snapshot({ a: file(2) });
  const after = snapshot({ a: file(2), hidden: file(3), b: file(4) }, before);
  expect(after.size).toBe(2);
  expect(after.since(before)).toMatchObject([{ type: "CREATED", name: "b" }]);
});
