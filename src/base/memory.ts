import { performance } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Sets up V8 for a service through which bytes stream. Call it before there is much to collect. */
export function tuneMemory(): void {
  // A young generation that may grow does so under a flood of output, beyond the processor's caches, and stays large.
  setFlagsFromString("--semi-space-growth-factor=1");
  // The bytes that stream through are outside the heap. By default, every 64 MB of them trigger a marking of the
  // whole heap, which takes longer than everything else done with them. Node 22 does not know this flag.
  if (Number.parseInt(process.versions.node, 10) >= 24)
    setFlagsFromString("--external-memory-accounted-in-global-limit");
  // After each collection the heap may double before the next. By default V8 allows a heap that has been idle a tenth more,
  // which is why a service would mark its whole heap for every few megabytes of the next transfer.
  setFlagsFromString("--heap-growing-percent=100");
}

/** The buffers of so many bytes are still in the processor's caches, mostly, where the next ones take their place. */
const YOUNG_COLLECTION_BYTES = 8 << 20;
let streamedBytes = 0;

/**
 * Counts bytes that came in or went out, and collects what they leave. To V8, their buffers are a few small objects, for
 * which it would wait until there are a hundred megabytes of them. A collection of young objects takes a millisecond.
 */
export function noteStreamed(bytes: number): void {
  streamedBytes += bytes;
  if (streamedBytes < YOUNG_COLLECTION_BYTES) return;
  streamedBytes = 0;
  collector()({ type: "minor", execution: "sync" });
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
export function collectWhenIdle(checkMs = CHECK_MS, collect: Collect = collector()): NodeJS.Timeout {
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

type V8Collect = (options: { readonly type: "major" | "minor"; readonly execution: "sync" }) => void;
let v8Collect: V8Collect | undefined;

function collector(): V8Collect {
  if (v8Collect !== undefined) return v8Collect;
  setFlagsFromString("--expose-gc");
  const found: V8Collect = runInNewContext("gc");
  v8Collect = found;
  return found;
}

/** What is in use or may be garbage. `process.memoryUsage()` would open a file, and throw where no more may be open. */
function usedBytes(): number {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
}
