// Children of the demo: started, shown, and ended with it.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const TAIL_BYTES = 8192;

/** What ends the demo before its time; the message is for the person. */
export class Stop extends Error {}

/**
 * Runs a program to its end and returns what it wrote to stdout. Unless `show`
 * is set, its words are kept back and only told where it fails.
 */
export async function run(command, args, { signal, env, show = false, stdin, cwd } = {}) {
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: [stdin === undefined ? "inherit" : "pipe", show ? "inherit" : "pipe", show ? "inherit" : "pipe"],
  });
  if (stdin !== undefined) child.stdin.on("error", () => {}).end(stdin);
  const words = { stdout: "", tail: "" };
  child.stdout?.on("data", (data) => {
    words.stdout += data;
    words.tail = (words.tail + data).slice(-TAIL_BYTES);
  });
  child.stderr?.on("data", (data) => {
    words.tail = (words.tail + data).slice(-TAIL_BYTES);
  });
  const code = await endOf(child, signal);
  if (signal?.aborted) throw signal.reason;
  return { code, stdout: words.stdout, tail: words.tail.trim() };
}

/** As {@link run}, but stdout is shown piece by piece as it comes; returns when the first piece came. */
export async function stream(command, args, { signal, env, stdin }) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {}).end(stdin);
  const begun = performance.now();
  const seen = { firstMs: undefined, pieces: 0, bytes: 0 };
  child.stdout.on("data", (data) => {
    seen.firstMs ??= performance.now() - begun;
    seen.pieces++;
    seen.bytes += data.length;
    process.stdout.write(data);
  });
  const code = await endOf(child, signal);
  if (signal.aborted) throw signal.reason;
  return { code, ms: performance.now() - begun, ...seen };
}

/** A program that stays: its first line of stdout says that it is ready. */
export async function startServer(command, args, { signal, env }) {
  // In a group of its own, so that a terminal's Ctrl-C does not reach it: the demo ends it in its turn.
  const child = spawn(command, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let log = "";
  child.stderr.on("data", (data) => {
    log = (log + data).slice(-TAIL_BYTES);
  });
  const ended = endOf(child);
  const server = {
    ended,
    log: () => log.trim(),
    /** Asks it to end; where it does not, ends it. */
    async stop(graceMs) {
      if (child.exitCode !== null || child.signalCode !== null) return ended;
      child.kill("SIGTERM");
      const timer = setTimeout(() => killGroup(child), graceMs);
      try {
        return await ended;
      } finally {
        clearTimeout(timer);
      }
    },
  };
  const line = new Promise((resolve) => createInterface(child.stdout).once("line", resolve));
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  const first = await Promise.race([line, ended.then(() => undefined), aborted.then(() => undefined)]);
  return { ...server, first };
}

function killGroup(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It has ended meanwhile.
  }
}

async function endOf(child, signal) {
  const stop = () => child.kill("SIGTERM");
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, name) => resolve(code ?? `signal ${name}`));
    });
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}
