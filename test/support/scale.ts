/** Whether the suites run at their full scale: `npm run test:full`. */
const FULL = process.env.BERTH_TEST_FULL === "1";

/**
 * How much a suite runs, such as the number of its cases.
 * @param full what `npm run test:full` runs: the figure that is claimed.
 * @param quick what the ordinary run takes: enough to find a defect that is not rare, within seconds.
 */
export function scaled<T>(full: T, quick: T): T {
  return FULL ? full : quick;
}

/**
 * Which of the cases to try on one of several variants of the same thing: in
 * the ordinary run each case on one of them, in a full run all on each.
 */
export function shared<T>(cases: readonly T[], variant: number, variants: number): T[] {
  return cases.filter((_, index) => FULL || index % variants === variant);
}
