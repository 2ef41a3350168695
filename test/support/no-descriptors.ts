import { spawn } from "node:child_process";
import { once } from "node:events";

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
