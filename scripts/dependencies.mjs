import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

export const ROOT = path.resolve(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "..");

/** Where Node keeps compiled code, unless the caller's environment names another directory. */
export const COMPILE_CACHE = path.join(ROOT, "node_modules/.cache/node");

/** An environment in which `node` and the tools are those of package.json, with a compile cache. */
export const ENVIRONMENT = {
  ...process.env,
  PATH: `${path.join(ROOT, "node_modules/.bin")}:${process.env.PATH ?? ""}`,
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? COMPILE_CACHE,
};

/** Runs a command in the repository and shows its output. Returns its exit code. */
export function run(command, args, options = {}) {
  const { status, signal, error } = spawnSync(command, args, {
    cwd: ROOT,
    env: ENVIRONMENT,
    stdio: "inherit",
    ...options,
  });
  if (error) console.error(`${command}: ${error.message}`);
  if (signal) console.error(`${command} was killed by ${signal}.`);
  return status ?? 1;
}

/** Installs the packages of package-lock.json unless node_modules has them. Exits if that fails. */
export function ensureDependencies() {
  if (Number(process.versions.node.split(".")[0]) < 20) {
    fail(`Node ${process.versions.node} is too old: 20 or newer is needed. See https://nodejs.org/download`);
  }
  if (isInstalled()) return;
  console.log("Installing the packages of package-lock.json ...");
  if (run("npm", ["ci", "--no-audit", "--no-fund"]) !== 0) fail("npm ci failed.");
  // Otherwise every script would install them again.
  if (!isInstalled()) {
    fail(
      `npm ci does not install what package-lock.json names: ${missing().join(", ")}. To fix that: npm install --package-lock-only`,
    );
  }
}

/** Whether what npm recorded at its last install is what it would install now. */
export function isInstalled() {
  return missing().length === 0;
}

function missing() {
  const installed = readPackages("node_modules/.package-lock.json");
  const wanted = Object.entries(readPackages("package-lock.json"));
  return wanted
    .filter(
      ([name, { version, optional }]) => name !== "" && !optional && installed[name]?.version !== version,
    )
    .map(([name]) => name);
}

function readPackages(file) {
  const lock = path.join(ROOT, file);
  return existsSync(lock) ? JSON.parse(readFileSync(lock, "utf8")).packages : {};
}

/** Prints a message and exits. */
export function fail(message) {
  console.error(message);
  process.exit(1);
}
