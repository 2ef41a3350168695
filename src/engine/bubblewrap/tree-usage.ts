import { childrenOf, Slices, statOf } from "../outside/host-process.ts";
import type { EngineUsage } from "../port.ts";

/** Clock ticks per second in /proc: the same on every Linux that Node runs on. */
const TICKS = 100;
const PAGE_BYTES = 4096;

/**
 * The usage of processes and all their descendants. The CPU time of ended children counts with their parent. Yields to
 * the event loop: a sandbox may have thousands of processes.
 */
export async function usageOfTree(roots: readonly number[]): Promise<EngineUsage> {
  const usage = { memoryBytes: 0, cpuNanos: 0, pids: 0 };
  const seen = new Set<number>();
  const left = [...roots];
  const slices = new Slices();
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    if (slices.over) await slices.rest();
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
