#!/usr/bin/env node
// Runs the program under a Node that can: the one at hand, or the one that the package `node` brought along.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Since this version TypeScript runs as it is. */
const LEAST = [22, 18];

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const built = path.join(root, "dist", "src", "main.js");
const main = existsSync(built) ? built : path.join(root, "src", "main.ts");

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major > LEAST[0] || (major === LEAST[0] && minor >= LEAST[1])) {
  await import(pathToFileURL(main).href);
} else {
  runUnder(findNode());
}

function findNode() {
  try {
    const manifest = createRequire(import.meta.url).resolve("node/package.json");
    const node = path.join(path.dirname(manifest), "bin", "node");
    if (existsSync(node)) return node;
  } catch {
    // Not installed: said below.
  }
  console.error(
    `berth: this needs Node ${LEAST.join(".")} or newer, and this is ${process.versions.node}.\n` +
      `Install the packages, which bring one: npm ci --prefix ${root}`,
  );
  process.exit(125);
}

function runUnder(node) {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"]) {
    process.on(signal, () => child.kill(signal));
  }
  child.on("error", (error) => {
    console.error(`berth: ${node} cannot be run: ${error.message}`);
    process.exit(125);
  });
  child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : (code ?? 125)));
}
