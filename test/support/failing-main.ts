import { readFileSync } from "node:fs";
import { armFailpoints } from "../../src/base/failpoints.ts";

/**
 * The program, which is killed when it reaches the failpoint named by BERTH_TEST_FAILPOINT, or by the content of the
 * file BERTH_TEST_FAILPOINT_FILE, which may change while it runs.
 */
const { BERTH_TEST_FAILPOINT: wanted, BERTH_TEST_FAILPOINT_FILE: file } = process.env;
armFailpoints((name) => {
  if (name === wanted || (file && readFileSync(file, "utf8") === name)) process.kill(process.pid, "SIGKILL");
});
void import("../../src/main.ts");
