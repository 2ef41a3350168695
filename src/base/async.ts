import type { Clock } from "./clock.ts";
import { abortError } from "./errors.ts";

/** What `work` comes to, unless the signal is aborted first. @throws the signal's reason. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(abortError(signal));
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Waits for `work`, but not for longer than `ms`. Rejects only where `work` does. */
export async function atMost(work: Promise<unknown>, ms: number, clock: Clock): Promise<void> {
  const late = Promise.withResolvers<void>();
  const cancel = clock.setTimer(ms, late.resolve);
  try {
    await Promise.race([work, late.promise]);
  } finally {
    cancel();
  }
}

/** Sandboxes that end at the same moment are removed this many at a time. */
const AT_ONCE = 16;

/** Acts on all items, a bounded number at a time. */
export async function inBatches<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await act(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}
