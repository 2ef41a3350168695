/** The value that a share of all values does not exceed. 0 if there are none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
}
