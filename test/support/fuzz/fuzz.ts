import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { expect } from "vitest";

/** How many cases all fuzzers run together: BERTH_FUZZ_CASES, which `npm run fuzz` sets to a million. */
export const FUZZ_CASES = Number(process.env.BERTH_FUZZ_CASES ?? 40_000);
/** Every run has its own cases. BERTH_FUZZ_SEED, which a failure names, repeats the same ones. */
export const FUZZ_SEED =
  process.env.BERTH_FUZZ_SEED === undefined ? undefined : Number(process.env.BERTH_FUZZ_SEED);

/** The event loop serves every caller, so no case may block it for longer. */
const MAX_PAUSE_MS = 100;
/** A slow case is tried again: slow code is slow each time, garbage collection is not. */
const TRIES = 3;
/** After this many cases the event loop gets a turn, for other work of the process. */
const CASES_PER_TURN = 500;

/** Only against a case that never ends. */
export const FUZZ_TIMEOUT_MS = 20 * 60_000;

/**
 * Gives `take` a share of all cases. It must return from each, may throw nothing, and may block the event loop for at
 * most a tenth of a second.
 */
export async function fuzz<T>(
  share: number,
  cases: fc.Arbitrary<T>,
  take: (value: T) => void | Promise<void>,
): Promise<void> {
  let count = 0;
  const property = fc.asyncProperty(cases, async (value) => {
    if (++count % CASES_PER_TURN === 0) await setImmediate();
    const start = performance.now();
    await take(value);
    // It computed for at most as long.
    if (performance.now() - start <= MAX_PAUSE_MS) return;
    let heldMs = Number.POSITIVE_INFINITY;
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
  // The report names the smallest failing case and the seed.
  expect(details.failed, await fc.asyncDefaultReportMessage(details)).toBe(false);
}

/** The CPU time of this thread, which does not depend on the load of the machine. */
async function computedMs(work: () => void | Promise<void>): Promise<number> {
  const begin = process.threadCpuUsage();
  await work();
  const { user, system } = process.threadCpuUsage(begin);
  return (user + system) / 1000;
}

/** Changes to bytes or text: some are overwritten, removed, repeated or inserted. */
const changes = fc.array(
  fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    kind: fc.constantFrom("set", "remove", "repeat", "insert", "cut"),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 6 }),
  }),
  { maxLength: 4 },
);

/** The bytes of each case, some unchanged and some mutated. */
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

/** The same bytes in chunks of any size. */
export function chunked(bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer[]> {
  return fc.tuple(bytes, fc.array(fc.nat(), { maxLength: 8 })).map(([whole, cuts]) => {
    const places = [0, ...cuts.map((cut) => cut % (whole.length + 1)), whole.length].sort((a, b) => a - b);
    return places.slice(1).map((to, index) => whole.subarray(places[index], to));
  });
}

/** Chunks in the form of a connection's stream. */
export async function* asStream(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* chunks;
}
