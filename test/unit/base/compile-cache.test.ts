import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";

const MODULE = path.join(import.meta.dirname, "../../../src/base/compile-cache.ts");

function directory(): string {
  const made = mkdtempSync(path.join(tmpdir(), "berth-compiled-"));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

/** A program that keeps what is compiled in a directory, and loads a module of the sources. */
function run(dataDir: string, env: NodeJS.ProcessEnv = {}): void {
  const { NODE_COMPILE_CACHE: _, ...own } = process.env;
  const text = `
    const { keepCompiled } = await import(${JSON.stringify(MODULE)});
    keepCompiled(process.argv[1]);
    await import(${JSON.stringify(path.join(import.meta.dirname, "../../../src/base/ids.ts"))});`;
  const args = ["--input-type=module", "--eval", text, dataDir];
  const { status, stderr } = spawnSync(process.execPath, args, { env: { ...own, ...env }, encoding: "utf8" });
  expect(stderr).toBe("");
  expect(status).toBe(0);
}

test("what is compiled is kept in a private directory", () => {
  const dataDir = directory();
  run(dataDir);
  const [version = ""] = readdirSync(path.join(dataDir, "compiled"));
  const kept = readdirSync(path.join(dataDir, "compiled", version));
  expect(kept).not.toEqual([]);
  run(dataDir);
  expect(readdirSync(path.join(dataDir, "compiled", version))).toEqual(kept);
});

test("nothing is kept where others may enter, where there is no directory, or where the environment names one", () => {
  const [open, missing, own] = [directory(), path.join(directory(), "missing"), directory()];
  chmodSync(open, 0o755);
  mkdirSync(path.join(own, "cache"));
  writeFileSync(path.join(open, "file"), "");
  run(open);
  run(missing);
  run(path.join(open, "file", "below"));
  run(own, { NODE_COMPILE_CACHE: path.join(own, "cache") });
  expect(readdirSync(open)).toEqual(["file"]);
  expect(existsSync(missing)).toBe(false);
  expect(readdirSync(own)).toEqual(["cache"]);
});
