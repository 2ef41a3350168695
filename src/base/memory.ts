import { performance } from "node:perf_hooks";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Sets up V8 for a service through which bytes stream. Call it before there is much to collect. */
export function tuneMemory(): void {
  // A young generation that may grow does so under a flood of output, beyond the processor's caches, and stays large.
  setFlagsFromString("--semi-space-growth-factor=1");
  // The bytes that stream through are outside the heap. By default, every 64 MB of them trigger a marking of the
  // whole heap, which takes longer than everything else done with them. Node 22 does not know this flag.
  if (Number.parseInt(process.versions.node, 10) >= 24)
    setFlagsFromString("--external-memory-accounted-in-global-limit");
}

const CHECK_MS = 2_000;
/** The event loop is idle where it worked for less than this part of the time. */
const IDLE_PART = 0.05;
/** A collection takes some tens of milliseconds: it is for where so much may be given back. */
const MIN_GROWTH_BYTES = 16 << 20;

/** Collects all garbage before it returns: `last-resort` that of optional parts of the heap, too. */
type Collect = (options: { type: "major"; execution: "sync"; flavor: "regular" | "last-resort" }) => void;

/**
 * Collects garbage when the event loop is idle: once after the start, and whenever enough may have gathered since. V8
 * collects where memory is asked for, so that an idle service would keep what its start or a flood of output left.
 * What is let go later than it was counted stays until as much again has come.
 *
 * @param checkMs how often it looks, for as long as the process lives or until the timer is cleared
 */
export function collectWhenIdle(checkMs = CHECK_MS, collect: Collect = v8Collect()): NodeJS.Timeout {
  let leastBytes: number | undefined;
  let last = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const { utilization } = performance.eventLoopUtilization(last);
    last = performance.eventLoopUtilization();
    if (utilization > IDLE_PART) return;
    if (leastBytes !== undefined) {
      const bytes = usedBytes();
      leastBytes = Math.min(leastBytes, bytes);
      if (bytes < leastBytes + MIN_GROWTH_BYTES) return;
    }
    const flavor = leastBytes === undefined ? "last-resort" : "regular";
    collect({ type: "major", execution: "sync", flavor });
    leastBytes = usedBytes();
  }, checkMs);
  return timer.unref();
}

function v8Collect(): Collect {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc");
}

/** What is in use or may be garbage. */
function usedBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
