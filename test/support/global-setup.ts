import { rm } from "node:fs/promises";
import { randomBase32 } from "../../src/base/ids.ts";
import { docker, removeContainers } from "./docker.ts";
import { dataDirs, instancePrefix } from "./settings.ts";

/**
 * Says once, before hundreds of tests do, that the daemon is missing; marks the
 * containers of this test run, and takes those away that a worker which died
 * left behind.
 */
export default async function setup(): Promise<() => Promise<void>> {
  try {
    await docker.ping();
  } catch (error) {
    throw new Error("The tests need a Docker daemon. Run them with: npm test", { cause: error });
  }
  // Each project that has tests in the run comes here.
  process.env.BERTH_TEST_RUN ??= randomBase32(8);
  return async () => {
    await rm(dataDirs(), { recursive: true, force: true });
    const count = await removeContainers(instancePrefix());
    if (count > 0) throw new Error(`${count} containers of this test run were left behind.`);
  };
}
