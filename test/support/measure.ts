/** The time that `act` takes, in milliseconds. */
export async function timed(act: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await act();
  return performance.now() - began;
}

/** The processor time that this thread has taken so far, in milliseconds. Unlike time, it does not depend on the load. */
export function processorNowMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** The processor time that `act` takes on this thread, in milliseconds. */
export function processorMs(act: () => void): number {
  const before = processorNowMs();
  act();
  return processorNowMs() - before;
}

/** The value that a share of all values does not exceed. 0 if there are none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
}
