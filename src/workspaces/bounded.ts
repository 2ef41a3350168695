import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../base/errors.ts";

/** Pause between two looks at a copy that grows. */
const PAUSE_MS = 1_000;
/** After a look it rests at least this many times as long as that took. */
const REST_FACTOR = 9;

/** How {@link bounded} works. */
interface Bound {
  /** Infinite: no bound. */
  readonly maxBytes: number;
  readonly measure: (signal: AbortSignal) => Promise<number>;
  readonly signal: AbortSignal;
  /** Between two looks, in milliseconds; a second by default. */
  readonly pauseMs?: number;
}

/**
 * Runs a copy of a tree that may grow meanwhile, and ends it where it is seen to have grown past the bound. Returns what
 * it takes at the end.
 * @throws `NO_SPACE`
 */
export async function bounded(
  copy: (signal: AbortSignal) => Promise<void>,
  { maxBytes, measure, signal, pauseMs = PAUSE_MS }: Bound,
): Promise<number> {
  const [over, done] = [new AbortController(), new AbortController()];
  const watching = Number.isFinite(maxBytes)
    ? watch({ maxBytes, measure, signal: AbortSignal.any([signal, done.signal]), pauseMs }, over)
    : Promise.resolve();
  try {
    await copy(AbortSignal.any([signal, over.signal]));
  } catch (error) {
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    done.abort();
    await watching;
  }
  const sizeBytes = await measure(signal);
  assertFits(sizeBytes, maxBytes);
  return sizeBytes;
}

/** @throws `NO_SPACE` */
export function assertFits(sizeBytes: number, maxBytes: number): void {
  if (sizeBytes > maxBytes) throw tooLarge(maxBytes);
}

async function watch(
  { maxBytes, measure, signal, pauseMs }: Required<Bound>,
  over: AbortController,
): Promise<void> {
  let tookMs = 0;
  while (!signal.aborted) {
    const restMs = Math.max(pauseMs, tookMs * REST_FACTOR);
    await sleep(restMs, undefined, { signal, ref: false }).catch(() => {});
    if (signal.aborted) return;
    const begin = performance.now();
    // A measurement that fails is no reason to end the copy.
    const sizeBytes = await measure(signal).catch(() => 0);
    if (sizeBytes > maxBytes) over.abort(tooLarge(maxBytes));
    tookMs = performance.now() - begin;
  }
}

function tooLarge(maxBytes: number): BerthError {
  return new BerthError(
    "NO_SPACE",
    `Nothing was copied: the workspace grew past ${maxBytes} bytes meanwhile, which is all the room there is. Stop what writes to it, or make room.`,
    { metadata: { quota_bytes: String(maxBytes) } },
  );
}
