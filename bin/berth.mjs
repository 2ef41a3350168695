#!/usr/bin/env node
// Runs the program under a Node that is new enough: the current one, or the one of the npm package `node`.
//
// Node cannot exec another program. An older Node starts the newer one as a child, forwards signals to it, exits as it
// exits, and makes sure that it ends too when the parent is killed. `bin/berth` execs and needs none of that.
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { constants } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** The first version that runs TypeScript by stripping types. */
const MIN_NODE = [22, 18];
/** The descriptor by which a child notices the end of its parent. */
const LIFELINE = "BERTH_LIFELINE_FD";
const LIFELINE_FD = 3;
/** Signals that can be forwarded; all others end the parent, and the child with it. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"];
/** How long the child may take to restore the terminal before the parent stops, too. */
const STOP_MS = 1000;
const POLL_MS = 5;

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major > MIN_NODE[0] || (major === MIN_NODE[0] && minor >= MIN_NODE[1])) {
  endWithParent();
  await import(pathToFileURL(chooseMain()).href);
} else {
  runUnder(findNode());
}

/** The build where it is newer than every source, or where sources cannot run; otherwise the sources. */
function chooseMain() {
  const sources = path.join(root, "src", "main.ts");
  const built = path.join(root, "dist", "src", "main.js");
  // Node strips no types below node_modules.
  const installed = root.split(path.sep).includes("node_modules") || !existsSync(sources);
  return installed || isFresh() ? built : sources;
}

/**
 * Whether nothing that `npm run build` reads has changed since the build began. Compares change times: unlike
 * modification times, no tool that copies files can set them back. A directory's covers renamed and deleted files.
 */
function isFresh() {
  // Created before the compiler starts, renamed once everything is built.
  const built = statSync(path.join(root, "dist", ".built"), { throwIfNoEntry: false });
  if (built === undefined) return false;
  const isOlder = (file) => statSync(file).ctimeMs < built.mtimeMs;
  return ["src", path.join("gen", "ts")]
    .map((name) => path.join(root, name))
    .every(
      (dir) =>
        isOlder(dir) && readdirSync(dir, { recursive: true }).every((name) => isOlder(path.join(dir, name))),
    );
}

function findNode() {
  try {
    const manifest = createRequire(import.meta.url).resolve("node/package.json");
    const node = path.join(path.dirname(manifest), "bin", "node");
    if (existsSync(node)) return node;
  } catch {
    // Not installed: reported below.
  }
  console.error(
    `berth: this needs Node ${MIN_NODE.join(".")} or newer, and this is ${process.versions.node}.\n` +
      `Install the packages, which bring one: npm ci --prefix ${root}`,
  );
  process.exit(125);
}

function runUnder(node) {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "pipe"],
    env: { ...process.env, [LIFELINE]: String(LIFELINE_FD) },
  });
  // Its other end closes when the child exits, which is handled below.
  child.stdio[LIFELINE_FD].on("error", () => {});
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  process.on("SIGTSTP", () => stopWith(child));
  child.on("error", (error) => {
    console.error(`berth: ${node} cannot be run: ${error.message}`);
    process.exit(125);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 125);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    // Node does not end by every signal.
    process.exit(128 + constants.signals[signal]);
  });
}

/** Stops once the child has stopped: it may have to restore the terminal before another program writes to it. */
function stopWith(child) {
  child.kill("SIGTSTP");
  const deadline = performance.now() + STOP_MS;
  const poll = () => {
    if (!isStopped(child.pid) && performance.now() < deadline) setTimeout(poll, POLL_MS);
    else process.kill(process.pid, "SIGSTOP");
  };
  poll();
}

function isStopped(pid) {
  try {
    return /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return true;
  }
}

/** Kills itself when the parent has ended: a parent that was killed cannot forward that. */
function endWithParent() {
  const fd = Number(process.env[LIFELINE]);
  delete process.env[LIFELINE];
  if (!Number.isInteger(fd)) return;
  const lifeline = new net.Socket({ fd });
  lifeline.on("error", () => {});
  lifeline.once("close", () => process.kill(process.pid, "SIGKILL"));
  lifeline.resume().unref();
}
