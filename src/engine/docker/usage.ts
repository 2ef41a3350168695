import type { ContainerStats } from "dockerode";
import { BerthError } from "../../base/errors.ts";
import type { EngineUsage } from "../port.ts";

/** Reads one answer of Docker's statistics. */
export function parseUsage(stats: ContainerStats): EngineUsage {
  // A container that does not run has statistics too: empty ones.
  if (stats.pids_stats?.current === undefined) {
    throw new BerthError("SANDBOX_TERMINATED", "The sandbox's container no longer runs.");
  }
  const { usage = 0, stats: memory } = stats.memory_stats;
  const detail = memory as unknown as Record<string, number | undefined> | undefined;
  // What the kernel can take back at any time is not use: cgroup v1's name, then v2's.
  const cache = detail?.total_inactive_file ?? detail?.inactive_file ?? 0;
  return {
    memoryBytes: Math.max(0, usage - cache),
    cpuNanos: stats.cpu_stats.cpu_usage.total_usage,
    pids: stats.pids_stats.current,
  };
}
