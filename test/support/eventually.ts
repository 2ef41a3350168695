import { setTimeout as sleep } from "node:timers/promises";

/** Against a hang: what is waited for may take that long on a busy machine. */
const TIMEOUT_MS = 60_000;
const MIN_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;

/**
 * Asks again and again until there is an answer other than `undefined` or
 * `false`, and returns it. Fails after `timeoutMs`, with what `describe` says.
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
    // Asking often costs what is waited for its processor; a tenth of the wait more costs little.
    await sleep(Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, waited / 10)));
  }
}
