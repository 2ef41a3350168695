#!/usr/bin/env node
// npm run check: everything that must pass before a change is merged. CI runs the same.
//
//   npm run check                 everything
//   npm run check -- --no-tests   everything but the tests
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { ENVIRONMENT, ensureDependencies, ROOT, run } from "./dependencies.mjs";

const withTests = !process.argv.includes("--no-tests");

ensureDependencies();

const checks = [
  ["types", () => run("tsc", ["-p", "."])],
  ["types of the TypeScript client", () => run("tsc", ["-p", "clients/typescript", "--noEmit"])],
  ["lint and format", () => run("biome", ["check", "--error-on-warnings"])],
  ["imports", () => run("depcruise", ["src", "clients/typescript/src"])],
  ["English", () => run("node", ["scripts/check-english.mjs"])],
  ["proto lint", () => run("buf", ["lint"])],
  ["proto format", () => run("buf", ["format", "proto", "--diff", "--exit-code"])],
  ["proto compatibility", checkCompatibility],
  ["generated code", () => run("scripts/check-generated.sh", [])],
  ["filter of system calls", () => run("scripts/check-filter.sh", [])],
  ...(withTests ? [["tests", () => run("node", ["scripts/test.mjs", "--all"])]] : []),
];

const failed = [];
for (const [name, check] of checks) {
  const start = performance.now();
  const code = check();
  console.log(
    `${code === 0 ? "ok" : "FAILED"}  ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`,
  );
  if (code !== 0) failed.push(name);
}
if (failed.length > 0) {
  console.error(`These checks failed: ${failed.join(", ")}.`);
  process.exitCode = 1;
}

/** Compares the protos with those that others may already use: main's, or on main the previous commit's. */
function checkCompatibility() {
  const head = git(["rev-parse", "HEAD"]);
  const main = ["main", "origin/main"].find((ref) => git(["rev-parse", "--verify", "--quiet", ref]));
  const onMain = main === undefined || git(["rev-parse", main]) === head;
  const base = git(["rev-parse", "--verify", "--quiet", onMain ? "HEAD~1" : `${main}^{commit}`]);
  if (base === undefined || !git(["ls-tree", "-r", "--name-only", base, "proto"])) {
    console.log("No earlier proto to compare with.");
    return 0;
  }
  const dir = mkdtempSync(path.join(tmpdir(), "berth-proto-"));
  try {
    const paths = ["buf.yaml", "proto", "third_party"].filter((name) => git(["ls-tree", base, name]));
    const archive = spawnSync("git", ["archive", base, ...paths], { cwd: ROOT, maxBuffer: 64 << 20 });
    spawnSync("tar", ["-x", "-C", dir], { input: archive.stdout });
    return run("buf", ["breaking", "--against", dir]);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** The output of git, or undefined if it fails. */
function git(args) {
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, env: ENVIRONMENT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}
