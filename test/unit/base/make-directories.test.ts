import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { makeDirectories } from "../../../src/base/make-directories.ts";

function newRoot(): string {
  const root = mkdtempSync(path.join(tmpdir(), "berth-directories-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  return root;
}

/** The error of creating a directory. */
function failureAt(place: string): NodeJS.ErrnoException {
  try {
    makeDirectories(place);
  } catch (error) {
    return error as NodeJS.ErrnoException;
  }
  throw new Error("it was made");
}

test("missing directories of a path are created, with the mode", () => {
  const root = newRoot();
  makeDirectories(path.join(root, "a/b/c"), 0o700);
  for (const made of ["a", "a/b", "a/b/c"]) expect(statSync(path.join(root, made)).mode & 0o7777).toBe(0o700);
});

test("an existing directory stays as it is, also behind a link", () => {
  const root = newRoot();
  mkdirSync(path.join(root, "there"), 0o755);
  symlinkSync("there", path.join(root, "link"));
  for (const place of ["there", "link", "link/"]) makeDirectories(path.join(root, place), 0o700);
  makeDirectories(path.join(root, "link/below"));
  expect(statSync(path.join(root, "there")).mode & 0o7777).toBe(0o755);
  expect(statSync(path.join(root, "there/below")).isDirectory()).toBe(true);
  makeDirectories("/");
});

test.each([
  ["a link that leads nowhere", "nowhere", "EEXIST"],
  ["what is below a link that leads nowhere", "nowhere/a/b", "EEXIST"],
  ["a link that leads to itself", "loop/a", "ELOOP"],
  ["a file", "file", "EEXIST"],
  ["what is below a file", "file/a", "ENOTDIR"],
])("%s is refused", (_, place, code) => {
  const root = newRoot();
  symlinkSync("missing/target", path.join(root, "nowhere"));
  symlinkSync("loop", path.join(root, "loop"));
  writeFileSync(path.join(root, "file"), "");
  expect(failureAt(path.join(root, place)).code).toBe(code);
});

test("a directory in which nothing can be created is refused", () => {
  expect(failureAt("/proc/berth/a")).toMatchObject({ code: "ENOENT", path: "/proc/berth" });
});
