import { describe, expect, test } from "vitest";
import { ArchiveCheck } from "../../../src/files/archive-check.ts";
import type { TarEntry, TarKind } from "../../../src/files/tar/tar-entry.ts";

type Short = readonly [kind: TarKind, name: string, linkName?: string];

function entry([kind, name, linkName = ""]: Short, more: Partial<TarEntry> = {}): TarEntry {
  const numbers = { mode: 0o644, uid: 5, gid: 5, modifyTime: 0, size: 0, deviceMajor: 0, deviceMinor: 0 };
  return { kind, name, linkName, ...numbers, ...more };
}

function admitAll(entries: readonly Short[]) {
  const check = new ArchiveCheck();
  return entries.map((each) => check.admit(entry(each)));
}

describe("lets pass", () => {
  test("entries that stay inside, with plain names", () => {
    const passed = admitAll([
      ["directory", "./"],
      ["directory", "./a//b/"],
      ["file", "a/./b/c"],
      ["file", "new/dir/..file"],
      ["symlink", "a/out", "../../../etc/passwd"],
      ["symlink", "abs", "/etc/passwd"],
      ["hard-link", "hard", "./a/b/c"],
      ["hard-link", "hard-to-link", "abs"],
      ["file", "a/b/c"],
      ["directory", "a"],
      ["hard-link", "hard", "a/b/c"],
    ]);
    expect(passed.flat().map((each) => [each.name, each.linkName])).toEqual([
      ["a", ""],
      ["a/b", ""],
      ["a/b/c", ""],
      ["new", ""],
      ["new/dir", ""],
      ["new/dir/..file", ""],
      ["a/out", "../../../etc/passwd"],
      ["abs", "/etc/passwd"],
      ["hard", "a/b/c"],
      ["hard-to-link", "abs"],
      ["a/b/c", ""],
      ["a", ""],
      ["hard", "a/b/c"],
    ]);
  });

  test("permissions without set-id bits, without owners, and with a time in range", () => {
    const [passed] = new ArchiveCheck().admit(entry(["file", "f"], { mode: 0o7755, modifyTime: -5 }));
    expect(passed).toMatchObject({ mode: 0o1755, uid: 0, gid: 0, modifyTime: -5 });
    const untold = new ArchiveCheck().admit(entry(["file", "d/f"], { mode: 0o600 }));
    expect(untold.map(({ kind, mode }) => [kind, mode])).toEqual([
      ["directory", 0o755],
      ["file", 0o600],
    ]);
  });
});

describe("refuses", () => {
  test.each<[string, ...Short[]]>([
    ["absolute", ["file", "/etc/passwd"]],
    ["absolute", ["directory", "//"]],
    ['".."', ["file", "../x"]],
    ['".."', ["file", "a/../../x"]],
    ['".."', ["file", "a/.."]],
    ['".."', ["directory", ".."]],
    ["NUL", ["file", "a\0b"]],
    ["no name", ["file", "."]],
    ["too long", ["file", "n".repeat(256)]],
    ["too long", ["file", "a/".repeat(2001)]],
    ["device", ["character-device", "null"]],
    ["device", ["block-device", "sda"]],
    ["FIFO", ["fifo", "pipe"]],
    ["not supported", ["other", "x"]],
    ["below a symbolic link", ["symlink", "l", "/etc"], ["file", "l/passwd"]],
    ["below a symbolic link", ["symlink", "a/l", "/etc"], ["directory", "a/l/deep/er"]],
    ["below a symbolic link", ["symlink", "l", "."], ["hard-link", "l/x", "l"]],
    ["same name", ["symlink", "l", "/etc/passwd"], ["file", "l"]],
    ["same name", ["file", "d/x"], ["symlink", "d", "/etc"]],
    ["same name", ["directory", "d"], ["file", "d"]],
    ["below a file", ["file", "f"], ["file", "f/x"]],
    ["same name", ["symlink", "l", "/etc"], ["hard-link", "h", "l"], ["file", "h"]],
    ["hard link", ["hard-link", "h", "etc/passwd"]],
    ["hard link", ["directory", "d"], ["hard-link", "h", "d"]],
    ["hard link", ["hard-link", "h", "later"], ["file", "later"]],
    ["absolute", ["hard-link", "h", "/etc/passwd"]],
    ['".."', ["file", "a"], ["hard-link", "h", "../a"]],
    ["nowhere", ["symlink", "l", ""]],
  ])("%s (case %#)", (problem, ...entries) => {
    let refused: unknown;
    try {
      admitAll(entries);
    } catch (error) {
      refused = error;
    }
    expect(refused).toMatchObject({
      reason: "ARCHIVE_REJECTED",
      message: expect.stringContaining(problem),
      metadata: { entry: expect.any(String) },
    });
  });

  test("more than 500,000 entries", () => {
    const check = new ArchiveCheck();
    for (let index = 0; index < 500_000; index++) check.admit(entry(["file", `f${index % 10}`]));
    expect(check.entryCount).toBe(500_000);
    expect(() => check.admit(entry(["file", "one-more"]))).toThrow("more than 500000 entries");
  });

  test("names that are too long in total, without spending time on deep trees", () => {
    const check = new ArchiveCheck();
    const deep = `${"d/".repeat(1900)}`;
    expect(() => {
      for (let index = 0; index < 100_000; index++) check.admit(entry(["file", `${index}/${deep}f`]));
    }).toThrow("too long in all");
  });
});
