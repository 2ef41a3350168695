import { readFileSync, writeFileSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** How long the last processes of a group may take to go. */
const REMOVE_MS = 10_000;

export function readWord(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return "";
  }
}

/** Whether the kernel took it. */
export function tryWrite(file: string, text: string): boolean {
  try {
    writeFileSync(file, text);
    return true;
  } catch {
    return false;
  }
}

/** Removes a group's directory as soon as it is empty of processes. */
export async function removeGroup(dir: string): Promise<void> {
  const deadline = performance.now() + REMOVE_MS;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 100)) {
    try {
      return await rmdir(dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || performance.now() > deadline) throw error;
    }
    await sleep(pauseMs);
  }
}
