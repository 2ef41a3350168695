#!/usr/bin/env node
// Runs the program under a Node that can: the one at hand, or the one that the package `node` brought along.
//
// An older Node cannot become another program. It starts that one, hands on what it is sent, ends as that one ends, and
// takes it along when it is killed. `bin/berth` needs no such thing.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { constants } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Since this version TypeScript runs as it is. */
const LEAST = [22, 18];
/** Names the descriptor of a child that ends with its parent. */
const LIFELINE = "BERTH_LIFELINE_FD";
const LIFELINE_FD = 3;
/** What can be handed on; all else ends the parent, and the child with it. */
const HANDED_ON = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"];
/** How long the child may take to give back the terminal before the parent stops, too. */
const STOP_MS = 1000;
const LOOK_MS = 5;

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const built = path.join(root, "dist", "src", "main.js");
const main = existsSync(built) ? built : path.join(root, "src", "main.ts");

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major > LEAST[0] || (major === LEAST[0] && minor >= LEAST[1])) {
  endWithParent();
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
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "pipe"],
    env: { ...process.env, [LIFELINE]: String(LIFELINE_FD) },
  });
  // Its other end is closed when the child has ended, which is told below.
  child.stdio[LIFELINE_FD].on("error", () => {});
  for (const signal of HANDED_ON) process.on(signal, () => child.kill(signal));
  process.on("SIGTSTP", () => stopWith(child));
  child.on("error", (error) => {
    console.error(`berth: ${node} cannot be run: ${error.message}`);
    process.exit(125);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 125);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    // Node does not end by every one.
    process.exit(128 + constants.signals[signal]);
  });
}

/** Stops when the child has stopped: it may have a terminal to give back before somebody else writes to that. */
function stopWith(child) {
  child.kill("SIGTSTP");
  const until = performance.now() + STOP_MS;
  const look = () => {
    if (!isStopped(child.pid) && performance.now() < until) setTimeout(look, LOOK_MS);
    else process.kill(process.pid, "SIGSTOP");
  };
  look();
}

function isStopped(pid) {
  try {
    return /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return true;
  }
}

/** Ends as if killed when the parent has ended, which a parent that was killed can tell nobody. */
function endWithParent() {
  const fd = Number(process.env[LIFELINE]);
  delete process.env[LIFELINE];
  if (!Number.isInteger(fd)) return;
  const lifeline = new net.Socket({ fd });
  lifeline.on("error", () => {});
  lifeline.once("close", () => process.kill(process.pid, "SIGKILL"));
  lifeline.resume().unref();
}
