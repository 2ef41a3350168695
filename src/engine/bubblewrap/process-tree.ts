import { readFileSync } from "node:fs";
import type { EngineUsage } from "../port.ts";

/** Clock ticks a second, in which the kernel counts a process's time: the same on every Linux that Node runs on. */
const TICKS = 100;
const PAGE_BYTES = 4096;

/** Children of a process on the host. */
export function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** The letter of its state; undefined where there is no such process. */
export function stateOf(pid: number): string | undefined {
  return statOf(pid)?.[0];
}

/** When it began, in ticks: what tells it from a later one of the same number. */
export function startOf(pid: number): string | undefined {
  return statOf(pid)?.[19];
}

/** Adds up what processes and all their descendants use now; who has ended is counted with its parent. */
export function usageOfTree(roots: readonly number[]): EngineUsage {
  const usage = { memoryBytes: 0, cpuNanos: 0, pids: 0 };
  const seen = new Set<number>();
  const left = [...roots];
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    const fields = statOf(pid);
    if (fields === undefined || seen.has(pid)) continue;
    seen.add(pid);
    left.push(...childrenOf(pid));
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    usage.cpuNanos += (ticks * 1e9) / TICKS;
    usage.memoryBytes += Number(fields[21]) * PAGE_BYTES;
    usage.pids++;
  }
  return usage;
}

/** Fields of `/proc/PID/stat` from the state on. */
function statOf(pid: number): string[] | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, "latin1")
      .replace(/^.*\) /s, "")
      .split(" ");
  } catch {
    return undefined;
  }
}
