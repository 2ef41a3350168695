import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync } from "node:fs";

/** Leaves this process no new descriptors for a while, or until `end` is called. Resolves when it cannot open anything. */
export async function withoutDescriptors(
  ms?: number,
): Promise<{ readonly over: Promise<void>; readonly end: () => void }> {
  const script = `soft=$(prlimit --pid "$1" --nofile --noheadings --output SOFT)
prlimit --pid "$1" --nofile=4: && echo taken; if [ "$2" ]; then sleep "$2"; else read -r _; fi; prlimit --pid "$1" --nofile="$soft":`;
  const args = ["-c", script, "sh", String(process.pid), ms === undefined ? "" : String(ms / 1000)];
  const child = spawn("sh", args, { stdio: ["pipe", "pipe", "ignore"] });
  const over = once(child, "exit").then(() => {});
  await once(child.stdout, "data");
  return { over, end: () => child.stdin.end() };
}

/** Descriptors that {@link takeDescriptors} leaves between the highest one and the limit. */
const ROOM = 64;

/**
 * Opens files until this process may open only a few more. Unlike {@link withoutDescriptors}, it leaves every number
 * below the limit in use, so that a descriptor that is closed can be opened again.
 * @param free how many it may still open.
 * @returns ends the shortage.
 */
export function takeDescriptors(free: number): () => void {
  const limit = Math.max(...readdirSync("/proc/self/fd").map(Number)) + ROOM;
  const prlimit = (...args: readonly string[]): string =>
    execFileSync("prlimit", ["--pid", String(process.pid), ...args], { encoding: "utf8" });
  const before = prlimit("--nofile", "--noheadings", "--output", "SOFT").trim();
  prlimit(`--nofile=${limit}:`);
  const taken: number[] = [];
  try {
    for (;;) taken.push(openSync("/dev/null", "r"));
  } catch {
    for (const fd of taken.splice(0, free)) closeSync(fd);
  }
  return () => {
    for (const fd of taken) closeSync(fd);
    prlimit(`--nofile=${before}:`);
  };
}
