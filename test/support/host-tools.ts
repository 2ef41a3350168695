import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished } from "vitest";

/** How long to wait for a tool. Only against hangs. */
const TIMEOUT_MS = 60_000;

/** Pids of the service's tar processes that work below a directory. */
export function tarsIn(directory: string): number[] {
  const isOne = (pid: string): boolean => {
    try {
      if (readFileSync(`/proc/${pid}/comm`, "utf8") !== "tar\n") return false;
      return readlinkSync(`/proc/${pid}/cwd`).startsWith(`${directory}/`);
    } catch {
      return false;
    }
  };
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && isOne(name))
    .map(Number);
}

/**
 * Waits until a condition holds, and stops the tar processes that work below a directory in the same turn. Looks without
 * a pause: what they do may take only a tenth of a second.
 */
export async function holdTarsOnce(holds: () => boolean, directory: string): Promise<{ release(): void }> {
  for (const start = performance.now(); !holds() && performance.now() - start < TIMEOUT_MS; )
    await setImmediate();
  const tars = tarsIn(directory);
  expect(tars).not.toEqual([]);
  return hold(tars);
}

/** Stops processes with SIGSTOP, so that their work does not finish, until they are released or the test ends. */
function hold(pids: readonly number[]): { release(): void } {
  const signal = (name: NodeJS.Signals, pid: number): void => {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  };
  const send = (name: NodeJS.Signals) => {
    for (const pid of pids) signal(name, pid);
  };
  send("SIGSTOP");
  onTestFinished(() => send("SIGCONT"));
  return { release: () => send("SIGCONT") };
}
