import { readFileSync } from "node:fs";
import { armFailpoints } from "../../src/base/failpoints.ts";

/**
 * The program, killed when it reaches the place that BERTH_TEST_FAILPOINT names, or
 * the file that BERTH_TEST_FAILPOINT_FILE names: that one may change while it runs.
 */
const { BERTH_TEST_FAILPOINT: wanted, BERTH_TEST_FAILPOINT_FILE: file } = process.env;
armFailpoints((name) => {
  if (name === wanted || (file && readFileSync(file, "utf8") === name)) process.kill(process.pid, "SIGKILL");
});
void import("../../src/main.ts");
