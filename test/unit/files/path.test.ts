import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { resolveEntry, resolvePath } from "../../../src/files/path.ts";

const HOME = "/workspace/home";

function resolve(bytes: string, workingDir = HOME): string {
  return resolvePath(workingDir, { field: "path", bytes });
}

test.each([
  [".", HOME],
  ["a", `${HOME}/a`],
  ["./a//b/./c/", `${HOME}/a/b/c`],
  ["a/../b", `${HOME}/b`],
  ["/", "/"],
  ["//etc///passwd", "/etc/passwd"],
  ["/tmp/../etc", "/etc"],
  ["/tmp/..", "/"],
  ["/workspace/../etc", "/etc"],
  ["/workspace/home/a/..", HOME],
  ["/tmp/../workspace/home/../x", "/workspace/x"],
  ["...", `${HOME}/...`],
  ["..a/a..", `${HOME}/..a/a..`],
])("%s is %s", (path, absolute) => {
  expect(resolve(path)).toBe(absolute);
});

test("what is removed or moved is the working directory only by its absolute path", () => {
  const entry = (bytes: string, workingDir = HOME) => resolveEntry(workingDir, { field: "path", bytes });
  for (const path of [".", "./", "a/..", "a/./../."]) {
    expect(() => entry(path)).toThrow("path: it is the working directory");
    expect(() => entry(path, "/")).toThrow("path: it is the working directory");
  }
  expect(entry("/workspace/home/")).toBe(HOME);
  expect(entry("a/../b")).toBe(`${HOME}/b`);
});

test.each([
  "..",
  "../home",
  "a/../..",
  "a/../../home/b",
  "/workspace/home/..",
  "//workspace/./home/../home/a",
  "/workspace/home/a/../../../etc/passwd",
  "/..",
  "/a/../..",
])("%s is refused", (path) => {
  expect(() => resolve(path)).toThrow(/^path: "\.\."/);
});

test("in the root directory, only the root itself cannot be left", () => {
  expect(resolve("a/../etc", "/")).toBe("/etc");
  expect(() => resolve("..", "/")).toThrow("climbs above the root");
});

test("a path that is too long for the kernel is refused", () => {
  expect(() => resolve("a/".repeat(2050))).toThrow("at most 4095");
});

describe("for any path", () => {
  const names = fc.array(fc.constantFrom("a", "b", "..", ".", "", "workspace", "home", "\xff"), {
    minLength: 1,
    maxLength: 12,
  });

  test("the result is absolute and normalized, and a relative path stays inside", () => {
    fc.assert(
      fc.property(names, fc.boolean(), (parts, absolute) => {
        const path = (absolute ? "/" : "") + (parts.join("/") || ".");
        let resolved: string;
        try {
          resolved = resolve(path);
        } catch {
          return;
        }
        expect(resolved).toMatch(/^\/([^/]+(\/[^/]+)*)?$/);
        expect(resolved.split("/")).not.toContain("..");
        if (!path.startsWith("/")) expect(`${resolved}/`.startsWith(`${HOME}/`)).toBe(true);
        expect(resolve(resolved)).toBe(resolved);
      }),
    );
  });
});
