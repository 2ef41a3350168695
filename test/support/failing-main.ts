import { armFailpoints } from "../../src/core/failpoints.ts";

/** The program, killed when it reaches the place that BERTH_TEST_FAILPOINT names. */
const { BERTH_TEST_FAILPOINT: wanted } = process.env;
armFailpoints((name) => {
  if (name === wanted) process.kill(process.pid, "SIGKILL");
});
await import("../../src/main.ts");
