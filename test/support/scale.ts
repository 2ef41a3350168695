/** Whether the suites run at full scale: `npm run test:full`. */
const FULL = process.env.BERTH_TEST_FULL === "1";
/** Whether variants that are very likely alike are all tried: `npm run test:all`, as in CI, and `npm run test:full`. */
export const EVERY_VARIANT = FULL || process.env.BERTH_TEST_ALL === "1";

/**
 * The size of a suite, such as its number of cases.
 * @param full for `npm run test:full`: the claimed figure.
 * @param quick for ordinary runs: enough to find a defect that is not rare, within seconds.
 */
export function scaled<T>(full: T, quick: T): T {
  return FULL ? full : quick;
}

/**
 * The cases to try on one of several variants of the same thing. In an ordinary run each case is tried on one variant,
 * in a full run on all.
 */
export function shared<T>(cases: readonly T[], variant: number, variants: number): T[] {
  return cases.filter((_, index) => FULL || index % variants === variant);
}
