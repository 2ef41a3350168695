import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { build } from "rolldown";
import { beforeAll, expect, onTestFinished, test } from "vitest";

const SOURCE = path.join(import.meta.dirname, "../../../src/base/compile-cache.ts");
/** The same as JavaScript, which a program without a cache loads in half the time. */
let module = "";

beforeAll(async () => {
  const made = mkdtempSync(path.join(tmpdir(), "berth-compiled-"));
  module = path.join(made, "module.mjs");
  await build({ input: SOURCE, platform: "node", output: { file: module } });
  return () => rmSync(made, { recursive: true });
});

function directory(): string {
  const made = mkdtempSync(path.join(tmpdir(), "berth-compiled-"));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

/** Runs a program that enables the compile cache and loads another module. */
function run(keep: string, env: NodeJS.ProcessEnv = {}): void {
  const { NODE_COMPILE_CACHE: _, ...own } = process.env;
  const text = `
    const { keepCompiled, keepCompiledForUser } = await import(${JSON.stringify(module)});
    ${keep};
    await import(${JSON.stringify(`${module}?again`)});`;
  const args = ["--input-type=module", "--eval", text];
  const { status, stderr } = spawnSync(process.execPath, args, { env: { ...own, ...env }, encoding: "utf8" });
  expect(stderr).toBe("");
  expect(status).toBe(0);
}

const keepIn = (place: string) => `keepCompiled(${JSON.stringify(place)})`;

test("compiled code is cached in a private directory, and found there", () => {
  const dataDir = directory();
  run(keepIn(dataDir));
  const [version = ""] = readdirSync(path.join(dataDir, "compiled"));
  const kept = readdirSync(path.join(dataDir, "compiled", version));
  expect(kept).not.toEqual([]);
  run(keepIn(dataDir));
  expect(readdirSync(path.join(dataDir, "compiled", version))).toEqual(kept);
});

test("a user's programs cache it in the user's cache directory", () => {
  const [home, caches] = [directory(), path.join(directory(), "caches")];
  run("keepCompiledForUser()", { HOME: home, XDG_CACHE_HOME: "" });
  run("keepCompiledForUser()", { HOME: home, XDG_CACHE_HOME: caches });
  for (const made of [path.join(home, ".cache"), caches]) {
    expect(readdirSync(path.join(made, "berth/compiled"))).not.toEqual([]);
    expect(statSync(made).mode & 0o077).toBe(0);
  }
});

test("nothing is cached if others may write there, if there is no directory, or if the environment names one", () => {
  const [open, missing, own] = [directory(), path.join(directory(), "missing"), directory()];
  const [file, below, read] = [path.join(open, "file"), path.join(open, "below"), directory()];
  writeFileSync(file, "");
  mkdirSync(below, { mode: 0o755 });
  chmodSync(open, 0o777);
  mkdirSync(path.join(own, "cache"));
  mkdirSync(path.join(read, "compiled"));
  chmodSync(path.join(read, "compiled"), 0o750);
  for (const place of [open, below, missing, file, path.join(file, "below"), read]) run(keepIn(place));
  run("keepCompiledForUser()", { HOME: below, XDG_CACHE_HOME: "" });
  run("keepCompiledForUser()", { HOME: file, XDG_CACHE_HOME: "" });
  run(keepIn(own), { NODE_COMPILE_CACHE: path.join(own, "cache") });
  expect(readdirSync(open).sort()).toEqual(["below", "file"]);
  expect([below, path.join(read, "compiled")].flatMap((place) => readdirSync(place))).toEqual([]);
  expect(existsSync(missing)).toBe(false);
  expect(readdirSync(own)).toEqual(["cache"]);
});

test("nobody can replace a directory below a private one", () => {
  const home = directory();
  const group = path.join(home, "group");
  mkdirSync(group);
  chmodSync(group, 0o775);
  run(keepIn(group));
  expect(readdirSync(group)).toEqual(["compiled"]);
});

test("nothing is cached below another user's home, not even by root", () => {
  let home = "/usr/share";
  if (process.getuid?.() === 0) {
    home = directory();
    chownSync(home, 65534, 65534);
  }
  const before = readdirSync(home);
  run("keepCompiledForUser()", { HOME: home, XDG_CACHE_HOME: "" });
  run(keepIn(home));
  expect(readdirSync(home)).toEqual(before);
});

test("a cache behind a dangling link does not block a program", () => {
  const home = directory();
  symlinkSync(path.join(home, "missing", "disk"), path.join(home, ".cache"));
  run("keepCompiledForUser()", { HOME: home, XDG_CACHE_HOME: "" });
});
