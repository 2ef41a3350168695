import { readdir, readFile, readlink } from "node:fs/promises";
import { onTestFinished } from "vitest";

/** Pids of the service's tar processes that work below a directory. */
export async function tarsIn(directory: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const working = await Promise.all(
    pids.map(async (pid) => {
      try {
        const [where, command] = await Promise.all([
          readlink(`/proc/${pid}/cwd`),
          readFile(`/proc/${pid}/comm`, "utf8"),
        ]);
        return where.startsWith(`${directory}/`) && command === "tar\n";
      } catch {
        return false;
      }
    }),
  );
  return pids.filter((_, index) => working[index]).map(Number);
}

/** Stops processes with SIGSTOP, so that their work does not finish, until they are released or the test ends. */
export function hold(pids: readonly number[]): { release(): void } {
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
