/**
 * How much of a test of scale to run: `full` where BERTH_TEST_FULL=1 is set, as
 * `npm run test:full` does; otherwise `quick`, enough to see a defect soon.
 */
export function scaled(full: number, quick: number): number {
  return process.env.BERTH_TEST_FULL === "1" ? full : quick;
}
