#!/usr/bin/env node
// npm run test:defects: reintroduces each defect of test/defects/ in a copy of the repository and verifies that its
// test fails there by an assertion. Without defects the same tests must pass. Takes about ten seconds per defect.
//
//   npm run test:defects                         all of them
//   npm run test:defects -- runs workspaces      those of areas, by file name
//   npm run test:defects -- "dropped pipes"      those whose names contain a text
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DEFECTS, DEFECTS_BY_AREA } from "../test/defects/all.ts";
import { reportedTitle } from "../test/defects/defect.ts";
import { ENVIRONMENT, ensureDependencies, fail, ROOT } from "./dependencies.mjs";

/**
 * The failures of a test that noticed the defect, including those of `expect.poll`. Any other failure proves nothing.
 */
const NOTICED =
  /^(AssertionError|Error: (the call did not fail|promise (rejected|resolved) |expected .+ to ))/;

ensureDependencies();
const wanted = process.argv.slice(2);
const matching =
  wanted.length === 0 ? DEFECTS : DEFECTS.filter((defect) => wanted.some((text) => isMeant(defect, text)));
/** Whether a test needs the cluster of scripts/kubernetes.sh. */
const isOnCluster = (file) => file.endsWith(".kubernetes.ts");
const hasCluster = process.env.BERTH_KUBERNETES_STATE !== undefined;
const defects = matching.filter(({ test }) => hasCluster || !isOnCluster(test.file));
if (matching.length === 0) fail("No defect matches.");
const leftOut = matching.length - defects.length;
if (defects.length === 0)
  fail('These need a cluster. Type: scripts/kubernetes.sh up; eval "$(scripts/kubernetes.sh env)"');

const copy = mkdtempSync(path.join(tmpdir(), "berth-defects-"));
// Some tests run the program as an ordinary user.
chmodSync(copy, 0o755);
const results = [];
try {
  copyRepository();
  const sound = runSound();
  for (const defect of defects) {
    const start = performance.now();
    const problem = sound.get(defect) ?? probe(defect);
    results.push({
      defect: defect.name,
      noticed: problem === undefined,
      seconds: Math.round((performance.now() - start) / 1000),
    });
    console.log(`${problem === undefined ? "noticed" : "MISSED"}  ${defect.name}`);
    if (problem !== undefined) console.log(problem);
  }
} finally {
  rmSync(copy, { recursive: true, force: true });
}
console.table(results);
const missed = results.filter(({ noticed }) => !noticed).length;
console.log(`${results.length - missed} noticed, ${missed} missed`);
if (leftOut > 0) console.log(`${leftOut} skipped, because they need a cluster: see scripts/kubernetes.sh`);
process.exitCode = missed > 0 ? 1 : 0;

/** @param text the name of an area, or a part of the defect's name */
function isMeant(defect, text) {
  return DEFECTS_BY_AREA[text]?.includes(defect) ?? defect.name.includes(text);
}

/** Tracked and untracked files of the working tree, except ignored ones. */
function copyRepository() {
  const { stdout } = spawnSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: ROOT,
    maxBuffer: 64 << 20,
  });
  for (const file of stdout.toString().split("\0")) {
    if (file !== "" && existsSync(path.join(ROOT, file)))
      cpSync(path.join(ROOT, file), path.join(copy, file), { recursive: true, verbatimSymlinks: true });
  }
  symlinkSync(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));
}

/** Runs the tests of all defects on the unchanged copy. Returns the problems of those that do not pass. */
function runSound() {
  const problems = new Map();
  const byFile = Map.groupBy(defects, ({ test }) => test.file);
  for (const [file, those] of byFile) {
    const ran = runTests(file, [...new Set(those.map(({ test }) => reportedTitle(test)))]);
    for (const defect of those) {
      const own = ran.filter(isOf(defect.test));
      if (own.length === 0) problems.set(defect, "its test was not run, or does not exist");
      else if (own.some(({ status }) => status !== "passed"))
        problems.set(defect, `without the defect its test fails: ${summary(own)}`);
    }
  }
  return problems;
}

/** Puts a defect in and takes it out again. Returns the problem. Undefined: the test noticed the defect. */
function probe({ changes, test }) {
  const before = new Map();
  try {
    for (const { file, from, to } of changes) {
      const place = path.join(copy, file);
      const text = readFileSync(place, "utf8");
      if (!before.has(place)) before.set(place, text);
      const parts = text.split(from);
      if (parts.length !== 2) return `the text to replace occurs ${parts.length - 1} times in ${file}`;
      writeFileSync(place, parts.join(to));
    }
    const title = reportedTitle(test);
    const ran = runTests(test.file, [title]).filter(isOf(test));
    if (ran.length === 0) return "with the defect its test was not run";
    if (ran.some(({ status }) => status === "passed")) return `its test passes: ${summary(ran)}`;
    const noticed = ran.every(({ failureMessages }) => failureMessages.some((text) => NOTICED.test(text)));
    return noticed ? undefined : `its test fails for another reason: ${summary(ran)}`;
  } finally {
    for (const [place, text] of before) writeFileSync(place, text);
  }
}

/** Whether a test that vitest reports is the test of a defect. */
function isOf(test) {
  return ({ title, fullName }) => title === reportedTitle(test) && fullName.includes(test.suite ?? "");
}

/** The tests of a file with these titles, as vitest reports them. */
function runTests(file, titles) {
  const report = path.join(copy, "report.json");
  rmSync(report, { force: true });
  const pattern = `(${titles.map((title) => title.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})$`;
  const config = isOnCluster(file) ? ["--config", "test/kubernetes.config.ts"] : [];
  const args = ["run", ...config, file, "-t", pattern, "--reporter=json", `--outputFile=${report}`];
  const { stdout, stderr } = spawnSync("node", ["node_modules/vitest/vitest.mjs", ...args], {
    cwd: copy,
    env: ENVIRONMENT,
    encoding: "utf8",
    maxBuffer: 64 << 20,
  });
  if (!existsSync(report)) fail(`vitest ended without a report on ${file}:\n${stdout}${stderr}`);
  const { testResults } = JSON.parse(readFileSync(report, "utf8"));
  return testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ status }) => status === "passed" || status === "failed");
}

function summary(tests) {
  return tests
    .map(
      ({ fullName, status, failureMessages }) =>
        `${fullName}: ${status} ${failureMessages.join("; ").slice(0, 400)}`,
    )
    .join("\n");
}
