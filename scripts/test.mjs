#!/usr/bin/env node
// npm test: installs what the tests need (packages, programs, a Docker daemon, images), runs them and reports how many
// passed. Everything after -- goes to vitest.
//
//   npm test                                      the unit and the integration tests
//   npm test -- test/integration/engine -t mount  some of all tests
//   npm run test:all                              all of them, as in CI: also the guides and packages that users get
//                                                 (test/release), what needs the machine to itself
//                                                 (*.alone.test.ts), and on each engine also what does not depend on it
//   npm run test:full                             all at full scale, with many more cases: hours on two cores
//   npm run test:busy                             npm test during a busy loop on every core; results must be the same
//   npm test -- --yes                             install and start what is missing without asking; same as CI=true
//
// A skipped test counts as a failure, unless tests were selected with -t.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { COMPILE_CACHE, ENVIRONMENT, ensureDependencies, fail, run } from "./dependencies.mjs";

const OWN_OPTIONS = ["--yes", "--all", "--full", "--busy"];
/** Ends with the process that started it, even if that is killed. */
const BUSY_LOOP = "const parent = process.ppid; while (process.ppid === parent);";
/** Some twenty runs leave as many files. */
const MAX_COMPILED = 30_000;
const args = process.argv.slice(2).filter((arg) => !OWN_OPTIONS.includes(arg));
const isAll = args.length > 0 || process.argv.includes("--all") || process.argv.includes("--full");
if (process.argv.includes("--yes")) ENVIRONMENT.CI = "true";
if (process.argv.includes("--all")) ENVIRONMENT.BERTH_TEST_ALL = "1";
if (process.argv.includes("--full")) ENVIRONMENT.BERTH_TEST_FULL = "1";

ensureDependencies();
pruneCompileCache();
for (const script of [
  "test-tools.sh",
  "docker.sh",
  "base-image.sh --desktop --test",
  "busybox-image.sh",
  "nginx.sh",
  "envoy.sh",
]) {
  const [name, ...options] = script.split(" ");
  if (run(`scripts/${name}`, options) !== 0) {
    fail("The tests need this. Fix it as described above, or let npm do it: npm test -- --yes");
  }
}

const loops = process.argv.includes("--busy")
  ? Array.from({ length: availableParallelism() }, () =>
      spawn(process.execPath, ["-e", BUSY_LOOP], { stdio: "ignore" }),
    )
  : [];
const reports = mkdtempSync(path.join(tmpdir(), "berth-test-"));
const file = path.join(reports, "report.json");
const code = run("node", [
  "node_modules/vitest/vitest.mjs",
  "run",
  "--reporter=default",
  "--reporter=json",
  `--outputFile.json=${file}`,
  ...(isAll ? [] : ["--project", "unit", "--project", "integration"]),
  ...args,
]);
for (const loop of loops) loop.kill("SIGKILL");
const report = readReport();
rmSync(reports, { recursive: true });
if (report === undefined) fail("vitest ended without a report.");

const chosen = args.some((arg) => arg === "-t" || arg.startsWith("--testNamePattern"));
// A file that could not be loaded has no tests to count, but is a failure.
const broken = report.testResults.filter(
  ({ status, assertionResults }) => status === "failed" && assertionResults.length === 0,
);
const failed = report.numFailedTests + broken.length;
const skipped = report.numPendingTests + report.numTodoTests;
if (code !== 0 && failed === 0) console.error("vitest failed outside the tests: see above.");
console.log(`${report.numPassedTests} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = code !== 0 || failed > 0 || (skipped > 0 && !chosen) ? 1 : 0;

/**
 * Node never prunes its compile cache, and vitest loads each test file from another URL in each run, whose compiled code
 * no later run finds.
 */
function pruneCompileCache() {
  if (existsSync(COMPILE_CACHE) && readdirSync(COMPILE_CACHE, { recursive: true }).length > MAX_COMPILED)
    rmSync(COMPILE_CACHE, { recursive: true });
}

function readReport() {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}
