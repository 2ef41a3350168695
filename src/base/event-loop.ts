/** What new requests and streams together may take of one turn of the event loop, in milliseconds. */
const SHARE_MS = 5;

interface Turn {
  /** When the first of such work went on in it. */
  readonly sinceMs: number;
  readonly end: Promise<void>;
}

let turn: Turn | undefined;

/**
 * For work that is there already in any amount, and would otherwise keep
 * everything else waiting: a promise of the next turn where such work has used up
 * its share of this one, undefined where it may go on.
 */
export function turnOver(): Promise<void> | undefined {
  const nowMs = performance.now();
  if (turn !== undefined) return nowMs - turn.sinceMs < SHARE_MS ? undefined : turn.end;
  const { promise, resolve } = Promise.withResolvers<void>();
  turn = { sinceMs: nowMs, end: promise };
  setImmediate(() => {
    turn = undefined;
    resolve();
  });
  return undefined;
}
