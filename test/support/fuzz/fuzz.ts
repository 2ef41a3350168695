import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { expect } from "vitest";

/** How many cases all fuzzers have together: BERTH_FUZZ_CASES, which `npm run fuzz` sets to a million. */
export const FUZZ_CASES = Number(process.env.BERTH_FUZZ_CASES ?? 40_000);
/** Every run has cases of its own; BERTH_FUZZ_SEED, which a failure names, has the same ones again. */
export const FUZZ_SEED =
  process.env.BERTH_FUZZ_SEED === undefined ? undefined : Number(process.env.BERTH_FUZZ_SEED);

/** The event loop serves every caller: no case may hold it for longer. */
const MAX_PAUSE_MS = 100;
/** A case that took too long is taken again: what computes for too long does so each time, a round of garbage collection does not. */
const TRIES = 3;
/** After so many cases the event loop has a turn, for what else the process does. */
const CASES_PER_TURN = 500;

/** Against a case that never ends. */
export const FUZZ_TIMEOUT_MS = 20 * 60_000;

/**
 * Gives `take` a share of all cases. It has to come back from each, may throw
 * nothing, and may hold the event loop for a tenth of a second at most.
 */
export async function fuzz<T>(
  share: number,
  cases: fc.Arbitrary<T>,
  take: (value: T) => void | Promise<void>,
): Promise<void> {
  let count = 0;
  const property = fc.asyncProperty(cases, async (value) => {
    if (++count % CASES_PER_TURN === 0) await setImmediate();
    let heldMs = await computedMs(() => take(value));
    for (let tries = 1; heldMs > MAX_PAUSE_MS && tries < TRIES; tries++) {
      heldMs = Math.min(heldMs, await computedMs(() => take(value)));
    }
    if (heldMs > MAX_PAUSE_MS) throw new Error(`held the event loop for ${Math.round(heldMs)} ms`);
  });
  const runs = {
    numRuns: Math.ceil(share * FUZZ_CASES),
    ...(FUZZ_SEED !== undefined && { seed: FUZZ_SEED }),
  };
  const details = await fc.check(property, runs);
  // The report names the case, made as small as it fails, and the seed.
  expect(details.failed, await fc.asyncDefaultReportMessage(details)).toBe(false);
}

/** How long this thread computed, which a busy machine does not change. */
async function computedMs(work: () => void | Promise<void>): Promise<number> {
  const begin = process.threadCpuUsage();
  await work();
  const { user, system } = process.threadCpuUsage(begin);
  return (user + system) / 1000;
}

/** Bytes, or text, changed here and there: some overwritten, taken out, said twice or put in. */
const changes = fc.array(
  fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    kind: fc.constantFrom("set", "remove", "repeat", "insert", "cut"),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 6 }),
  }),
  { maxLength: 4 },
);

/** The bytes of each case, some as they are and some changed here and there. */
export function mutated(bytes: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Buffer> {
  return fc.tuple(bytes, changes).map(([whole, list]) => {
    let buffer = Buffer.from(whole);
    for (const { at, kind, bytes: put } of list) {
      const place = Math.floor(at * buffer.length);
      const [before, after] = [buffer.subarray(0, place), buffer.subarray(place)];
      if (kind === "cut") buffer = Buffer.from(before);
      else if (kind === "set") buffer = Buffer.concat([before, put, after.subarray(put.length)]);
      else if (kind === "remove") buffer = Buffer.concat([before, after.subarray(put.length)]);
      else if (kind === "insert") buffer = Buffer.concat([before, put, after]);
      else buffer = Buffer.concat([before, after.subarray(0, 64), after]);
    }
    return buffer;
  });
}

/** The same bytes, in chunks of any size. */
export function chunked(bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer[]> {
  return fc.tuple(bytes, fc.array(fc.nat(), { maxLength: 8 })).map(([whole, cuts]) => {
    const places = [0, ...cuts.map((cut) => cut % (whole.length + 1)), whole.length].sort((a, b) => a - b);
    return places.slice(1).map((to, index) => whole.subarray(places[index], to));
  });
}

/** Chunks as they come over a connection. */
export async function* asStream(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* chunks;
}
