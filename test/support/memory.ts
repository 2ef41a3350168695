import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** Resident memory of a process, in bytes. */
export async function memoryOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const found = /^VmRSS:\s+(\d+) kB$/m.exec(status);
  if (found === null) throw new Error(`process ${pid} does not run any more`);
  return Number(found[1]) * 1024;
}

/** Watches the memory of a process; the returned function stops that and tells the most there was. */
export function watchMemory(pid: number, everyMs = 20): () => Promise<number> {
  let most = 0;
  let over = false;
  const look = async (): Promise<void> => {
    while (!over) {
      most = Math.max(most, await memoryOf(pid));
      await sleep(everyMs);
    }
  };
  const looking = look();
  // A failure is told to whoever stops the watch.
  looking.catch(() => {});
  return async () => {
    over = true;
    await looking;
    return most;
  };
}
