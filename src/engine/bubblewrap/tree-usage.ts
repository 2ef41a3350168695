import { readFileSync } from "node:fs";
import { childrenOf, scanTurns, statOf, threadsOf } from "../outside/host-process.ts";
import type { EngineUsage } from "../port.ts";

/** Clock ticks per second in /proc: the same on every Linux that Node runs on. */
const TICKS = 100;
/** The type of the page size among a process's auxiliary values, each of 8 bytes for the type and 8 for the value. */
const AT_PAGESZ = 6n;

/** Size of the pages in which the kernel counts memory: 4 KiB on x64, up to 64 KiB on arm64. */
export function pageBytesIn(auxiliary: Buffer): number {
  for (let at = 0; at + 16 <= auxiliary.length; at += 16)
    if (auxiliary.readBigUInt64LE(at) === AT_PAGESZ) return Number(auxiliary.readBigUInt64LE(at + 8));
  throw new Error("the kernel does not say how large a page is");
}

let pageBytes: number | undefined;

/**
 * The usage of processes and all their descendants. The CPU time of ended children counts with their parent, and
 * threads count as processes. Yields to the event loop: a sandbox may have thousands of them.
 */
export async function usageOfTree(roots: readonly number[]): Promise<EngineUsage> {
  pageBytes ??= pageBytesIn(readFileSync("/proc/self/auxv"));
  const usage = { memoryBytes: 0, cpuNanos: 0, pids: 0 };
  const seen = new Set<number>();
  const left = [...roots];
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    const fields = statOf(pid);
    if (fields === undefined || seen.has(pid)) continue;
    seen.add(pid);
    const threads = Number(fields[17]);
    for (const thread of threads > 1 ? threadsOf(pid) : [pid]) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      left.push(...childrenOf(pid, thread));
    }
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    usage.cpuNanos += (ticks * 1e9) / TICKS;
    usage.memoryBytes += Number(fields[21]) * pageBytes;
    usage.pids += Math.max(1, threads);
  }
  return usage;
}
