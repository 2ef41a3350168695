import { setTimeout as sleep } from "node:timers/promises";

/**
 * Asks again and again until there is an answer other than `undefined` or
 * `false`, and returns it. Fails after `timeoutMs`, with what `describe` says.
 */
export async function eventually<T>(
  ask: () => T | Promise<T>,
  options: { readonly timeoutMs?: number; readonly describe?: () => unknown } = {},
): Promise<Exclude<T, undefined | false>> {
  const { timeoutMs = 10_000, describe } = options;
  const end = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer as Exclude<T, undefined | false>;
    if (performance.now() > end) {
      throw new Error(`not within ${timeoutMs} ms: ${describe ? JSON.stringify(describe()) : ask}`);
    }
    await sleep(20);
  }
}
