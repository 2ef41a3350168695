import { setImmediate as nextTurn } from "node:timers/promises";

/** What all streams together may take of one turn of the event loop, in milliseconds. */
const SHARE_MS = 5;

/** When the first of them went on in this turn. */
let sinceMs: number | undefined;

/**
 * For loops over what is there already, which would otherwise keep everything
 * else waiting: a promise of the next turn where streams have used up their
 * share of this one, undefined where they may go on.
 */
export function turnOver(): Promise<void> | undefined {
  const nowMs = performance.now();
  if (sinceMs !== undefined) return nowMs - sinceMs < SHARE_MS ? undefined : nextTurn();
  sinceMs = nowMs;
  setImmediate(() => {
    sinceMs = undefined;
  });
  return undefined;
}
