import type { Clock } from "./clock.ts";
import { abortError } from "./errors.ts";

/** What `work` comes to, unless the signal is aborted first; the work itself goes on. @throws the signal's reason. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
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
