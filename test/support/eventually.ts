import { setTimeout as sleep } from "node:timers/promises";

/** Only against hangs: on a busy machine something may take this long. */
const TIMEOUT_MS = 60_000;
const MIN_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;

/**
 * Polls until the result is neither `undefined` nor `false`, and returns it. Fails after `timeoutMs`, with what
 * `describe` returns.
 */
export async function eventually<T>(
  ask: () => T | Promise<T>,
  options: { readonly timeoutMs?: number; readonly describe?: () => unknown } = {},
): Promise<Exclude<T, undefined | false>> {
  const { timeoutMs = TIMEOUT_MS, describe } = options;
  const start = performance.now();
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer as Exclude<T, undefined | false>;
    const waited = performance.now() - start;
    if (waited > timeoutMs) {
      throw new Error(`not within ${timeoutMs} ms: ${describe ? JSON.stringify(await describe()) : ask}`);
    }
    // Polling takes CPU time from what it waits for. A pause of a tenth of the time so far costs little.
    await sleep(Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, waited / 10)));
  }
}
