import { randomBase32 } from "../../src/core/ids.ts";
import { removeContainers } from "./docker.ts";
import { instancePrefix } from "./settings.ts";

/** Marks the containers of this test run, and takes those away that a worker which died left behind. */
export default function setup(): () => Promise<void> {
  process.env.BERTH_TEST_RUN = randomBase32(8);
  return async () => {
    const count = await removeContainers(instancePrefix());
    if (count > 0) throw new Error(`${count} containers of this test run were left behind.`);
  };
}
