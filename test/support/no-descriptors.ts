import { spawn } from "node:child_process";
import { once } from "node:events";

/** Leaves this process no new descriptors for a while. Resolves when it cannot open anything. */
export async function withoutDescriptors(ms: number): Promise<{ readonly over: Promise<void> }> {
  const script = `soft=$(prlimit --pid "$1" --nofile --noheadings --output SOFT)
prlimit --pid "$1" --nofile=4: && echo taken; sleep "$2"; prlimit --pid "$1" --nofile="$soft":`;
  const args = ["-c", script, "sh", String(process.pid), String(ms / 1000)];
  const child = spawn("sh", args, { stdio: ["ignore", "pipe", "ignore"] });
  const over = once(child, "exit").then(() => {});
  await once(child.stdout, "data");
  return { over };
}
