/** The values of a row. */
export interface Sample {
  /** Values of Berth and of what it is compared with, in the row's unit. */
  readonly berth: readonly number[];
  readonly raw: readonly number[];
}

export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

/** How many milliseconds something took. */
export async function timed(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await act();
  return performance.now() - start;
}

/** Times two things alternately, so that other load on the machine affects both. */
export async function inTurn(
  rounds: number,
  berth: () => Promise<unknown>,
  raw: () => Promise<unknown>,
): Promise<{ berth: number[]; raw: number[] }> {
  const sample = { berth: [] as number[], raw: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    sample.berth.push(await timed(berth));
    sample.raw.push(await timed(raw));
  }
  return sample;
}

/** How many times per second something is done, with `atOnce` at the same time. */
export async function perSecond(
  atOnce: number,
  ms: number,
  act: (worker: number) => Promise<unknown>,
): Promise<number> {
  const start = performance.now();
  let count = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async (_, worker) => {
      for (; performance.now() - start < ms; count++) await act(worker);
    }),
  );
  return (count / (performance.now() - start)) * 1000;
}
