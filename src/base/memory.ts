import { performance } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { mallocTrimmer } from "./malloc-trim.ts";

/** Tunes V8 for a service that streams bytes. Call it before there is much garbage. */
export function tuneMemory(): void {
  // Keep the young generation from growing: under a flood of output it would grow beyond the CPU's caches, and stay
  // large.
  setFlagsFromString("--semi-space-growth-factor=1");
  // Streamed bytes are outside the heap. By default, every 64 MB of them trigger a marking of the whole heap, which
  // takes longer than everything else done with them. Node 22 does not know this flag.
  if (Number.parseInt(process.versions.node, 10) >= 24)
    setFlagsFromString("--external-memory-accounted-in-global-limit");
  // Let the heap double before the next collection. By default V8 lets a heap that has been idle grow by only a tenth,
  // so a service would mark its whole heap for every few megabytes of the next transfer.
  setFlagsFromString("--heap-growing-percent=100");
}

/** Buffers of this many bytes are mostly still in the CPU's caches, so the next ones can reuse that memory. */
const YOUNG_COLLECTION_BYTES = 8 << 20;
let streamedBytes = 0;

/**
 * Counts streamed bytes, and collects their garbage. To V8, their buffers are a few small objects, so it would wait
 * until there are a hundred megabytes of them. A collection of young objects takes a millisecond.
 */
export function noteStreamed(bytes: number): void {
  streamedBytes += bytes;
  if (streamedBytes < YOUNG_COLLECTION_BYTES) return;
  streamedBytes = 0;
  collector()({ type: "minor", execution: "sync" });
}

const CHECK_MS = 2_000;
/** The event loop counts as idle if it was busy for less than this part of the time. */
const IDLE_PART = 0.05;
/** A collection takes tens of milliseconds, so it needs at least this much growth since the last one. */
const MIN_GROWTH_BYTES = 16 << 20;
/** The same for the first collection after the event loop was busy. */
const MIN_GROWTH_AFTER_WORK_BYTES = 4 << 20;

interface IdleOptions {
  /** How often to check. Default 2,000. */
  readonly checkMs?: number;
  /** Collects all garbage before it returns. `last-resort` also drops optional parts of the heap. */
  readonly collect?: (options: {
    type: "major";
    execution: "sync";
    flavor: "regular" | "last-resort";
  }) => void;
  /** Returns memory that the C library has free to the system. */
  readonly trim?: () => void;
}

/**
 * Collects garbage when the event loop is idle: once after the start, and whenever enough garbage may have accumulated
 * since. V8 collects only when memory is allocated, so an idle service would keep the garbage of its start or of a
 * flood of output. Garbage that was still in use at the last count stays until memory has grown by as much again.
 *
 * At the next idle check it trims the C library's memory. Freed buffers are between others that are in use, so the
 * process would keep them.
 *
 * @returns the timer of the checks, which continue until it is cleared
 */
export function collectWhenIdle({
  checkMs = CHECK_MS,
  collect = collector(),
  trim = mallocTrimmer(),
}: IdleOptions = {}): NodeJS.Timeout {
  let leastBytes: number | undefined;
  let hasWorked = true;
  let isTrimmed = false;
  let last = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const { utilization } = performance.eventLoopUtilization(last);
    last = performance.eventLoopUtilization();
    if (utilization > IDLE_PART) {
      hasWorked = true;
      isTrimmed = false;
      return;
    }
    const bytes = usedBytes();
    const minGrowth = hasWorked ? MIN_GROWTH_AFTER_WORK_BYTES : MIN_GROWTH_BYTES;
    hasWorked = false;
    if (leastBytes === undefined || bytes >= leastBytes + minGrowth) {
      const flavor = leastBytes === undefined ? "last-resort" : "regular";
      collect({ type: "major", execution: "sync", flavor });
      leastBytes = usedBytes();
      // V8 frees buffers in other threads, after the collection.
      isTrimmed = false;
      return;
    }
    leastBytes = Math.min(leastBytes, bytes);
    if (isTrimmed) return;
    trim();
    isTrimmed = true;
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

/** Memory in use, garbage included. `process.memoryUsage()` opens a file, so it throws if no more files may be open. */
function usedBytes(): number {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
}
