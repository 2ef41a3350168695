import { describe, expect, test } from "vitest";
import { inside, nameOf, parseCopy } from "../../../../src/cli/copy/place.ts";

describe("both ends of a copy", () => {
  test.each([
    ["a.txt", "box:/srv/b.txt", { kind: "local", path: "a.txt" }, "box", "/srv/b.txt"],
    ["-", "box:b", { kind: "stream" }, "box", "b"],
    ["./odd:name", "box:", { kind: "local", path: "./odd:name" }, "box", "."],
    ["/dir/odd:name", "box:a:b", { kind: "local", path: "/dir/odd:name" }, "box", "a:b"],
  ])("%s to %s", (source, target, from, sandboxId, path) => {
    const to = { kind: "sandbox", sandboxId, path };
    expect(parseCopy(source, target)).toEqual({ direction: "up", from, to });
    expect(parseCopy(target, source)).toEqual({ direction: "down", from: to, to: from });
  });

  test("of a sandbox that is named apart, because of the characters in its id", () => {
    const to = { kind: "sandbox", sandboxId: "a:b/c", path: "d:e" };
    const from = { kind: "local", path: "box:f" };
    expect(parseCopy("box:f", ":d:e", "a:b/c")).toEqual({ direction: "up", from, to });
    expect(parseCopy(":", "-", "a:b/c")).toEqual({
      direction: "down",
      from: { ...to, path: "." },
      to: { kind: "stream" },
    });
    expect(() => parseCopy("f", "a:b/c:d", "a:b/c")).toThrow("neither side is in a sandbox; with --sandbox");
    expect(() => parseCopy(":f", ":d", "a:b/c")).toThrow("both sides are in sandboxes; with --sandbox");
  });

  test.each([
    ["a", "b", "neither side is in a sandbox"],
    ["-", "-", "neither side is in a sandbox"],
    ["box:a", "other:b", "both sides are in sandboxes"],
    ["", "box:b", "a path is empty"],
  ])("%j to %j is refused", (source, target, problem) => {
    expect(() => parseCopy(source, target)).toThrow(problem);
  });
});

test.each([
  ["dir/file", "file"],
  ["dir/", "dir"],
  ["/dir//", "dir"],
  ["dir/.", undefined],
  [".", undefined],
  ["a/..", undefined],
  ["/", undefined],
])("the name of %s is %s", (place, name) => {
  expect(nameOf(place)).toBe(name);
});

test.each([
  ["/dir", "file", "/dir/file"],
  ["/dir/", "file", "/dir/file"],
  ["/", "file", "/file"],
  ["dir", undefined, "dir"],
])("in %s, %s is %s", (directory, name, path) => {
  expect(inside(directory, name)).toBe(path);
});
