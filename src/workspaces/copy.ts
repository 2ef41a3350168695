import { rest } from "../base/async.ts";
import { BerthError } from "../base/errors.ts";

/** Pause between two measurements of a growing copy. */
const PAUSE_MS = 1_000;
/** After a measurement it rests at least this many times as long as that took. */
const REST_FACTOR = 9;

interface Bound {
  /** Infinite: no limit. */
  readonly maxBytes: number;
  readonly measure: (signal: AbortSignal) => Promise<number>;
  readonly signal: AbortSignal;
  /** Between two measurements, in milliseconds. Default: a second. */
  readonly pauseMs?: number;
}

/**
 * Copies a tree that may grow meanwhile, and aborts when the copy exceeds the limit. Returns its final size.
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
    await rest(restMs, signal);
    if (signal.aborted) return;
    const begin = performance.now();
    // A failed measurement does not end the copy.
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

/** What an unpacking tar prints about devices, which copies leave out, and as its last line. */
const LEFT_OUT = /Cannot mknod: Operation not permitted$|Exiting with failure status/;
const NO_SPACE = /: (No space left on device|Disk quota exceeded|File too large)$/im;
const TOO_LONG = /: File name too long$/im;

/** Whether a message of an unpacking tar is about something that copies leave out. */
export function isLeftOut(line: string): boolean {
  return LEFT_OUT.test(line);
}

/** The error for a copy that could not be written. Undefined: tar's messages do not say why. */
export function copyFailure(complaints: string): BerthError | undefined {
  if (NO_SPACE.test(complaints)) {
    return new BerthError(
      "NO_SPACE",
      "Nothing was copied: the new workspace's quota, or the disk that holds workspaces, leaves no room for it.",
    );
  }
  if (TOO_LONG.test(complaints)) {
    return new BerthError(
      "UNSUPPORTED",
      "Nothing was copied: the workspace holds a path of more than 4095 bytes. Move its directories up, or export it.",
    );
  }
  return undefined;
}
