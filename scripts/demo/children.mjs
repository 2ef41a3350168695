// Child processes of the demo, which end with it.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const TAIL_BYTES = 8192;

/** Ends the demo early; the message is for the user. */
export class Stop extends Error {}

/** Runs a program to its end and returns its stdout. Unless `show` is set, the output is only shown if it fails. */
export async function run(command, args, { signal, env, show = false, stdin, cwd } = {}) {
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: [stdin === undefined ? "inherit" : "pipe", show ? "inherit" : "pipe", show ? "inherit" : "pipe"],
  });
  if (stdin !== undefined) child.stdin.on("error", () => {}).end(stdin);
  const output = { stdout: "", tail: "" };
  child.stdout?.on("data", (data) => {
    output.stdout += data;
    output.tail = (output.tail + data).slice(-TAIL_BYTES);
  });
  child.stderr?.on("data", (data) => {
    output.tail = (output.tail + data).slice(-TAIL_BYTES);
  });
  const code = await endOf(child, signal);
  if (signal?.aborted) throw signal.reason;
  return { code, stdout: output.stdout, tail: output.tail.trim() };
}

/** Like {@link run}, but shows stdout as it arrives. Also returns when the first chunk arrived. */
export async function stream(command, args, { signal, env, stdin }) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {}).end(stdin);
  const started = performance.now();
  const seen = { firstMs: undefined, pieces: 0, bytes: 0 };
  child.stdout.on("data", (data) => {
    seen.firstMs ??= performance.now() - started;
    seen.pieces++;
    seen.bytes += data.length;
    process.stdout.write(data);
  });
  const code = await endOf(child, signal);
  if (signal.aborted) throw signal.reason;
  return { code, ms: performance.now() - started, ...seen };
}

/** Starts a long-running program. Its first line on stdout means that it is ready. */
export async function startServer(command, args, { signal, env }) {
  // In its own process group, so that a terminal's Ctrl-C does not reach it: the demo stops it.
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
    /** Sends SIGTERM, and SIGKILL after the grace. */
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
    // It has already ended.
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
