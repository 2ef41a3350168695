import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import type { Clock } from "./clock.ts";
import { abortError, throwIfAborted } from "./errors.ts";

/**
 * Waits for `work`, or until the signal aborts; `work` itself continues.
 * @throws the signal's reason, unless `work` has already settled; what `work` rejects with.
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  let onAbort = (): void => {};
  // Commands of the program run with Node 20, which has no Promise.withResolvers.
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(abortError(signal));
  });
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Waits for `work`, but at most for `ms`, by `clock` or else in real time. Rejects only if `work` does. */
export async function within(work: Promise<unknown>, ms: number, clock?: Clock): Promise<void> {
  const over = new AbortController();
  const late =
    clock === undefined
      ? sleep(ms, undefined, { signal: over.signal, ref: false }).catch(() => {})
      : new Promise<void>((resolve) => {
          over.signal.addEventListener("abort", clock.setTimer(ms, resolve), { once: true });
        });
  try {
    await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}

/** Waits for `ms`, or until the signal aborts. Does not keep the program running. */
export async function rest(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => {});
}

/** Lets others use the event loop. @throws the signal's reason if it is aborted. */
export async function yieldTurn(signal: AbortSignal): Promise<void> {
  await setImmediate();
  throwIfAborted(signal);
}

/** The number of steps in which {@link stayOpen} waits. */
const STEPS = 10;

/**
 * Waits for `ms`, or until the signal aborts, for something that arrives from outside. The time counts in steps, and
 * what has arrived is taken between them: after a halt, however long, the rest of the time is still to come. Does not
 * keep the program running.
 */
export async function stayOpen(ms: number, signal?: AbortSignal): Promise<void> {
  for (let step = 0; step < STEPS && !signal?.aborted; step++) {
    await rest(ms / STEPS, signal);
    // Runs after the poll for I/O.
    await setImmediate();
  }
}

/** Runs `act` on every item, at most `limit` at a time. Rejects with the first failure; the other calls still run. */
export async function forEachConcurrently<T>(
  items: readonly T[],
  act: (item: T) => Promise<void>,
  limit = 16,
): Promise<void> {
  const queue = [...items].values();
  const worker = async (): Promise<void> => {
    for (const item of queue) await act(item);
  };
  await Promise.all(Array.from({ length: limit }, worker));
}
