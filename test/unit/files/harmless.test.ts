import { expect, test } from "vitest";
import { isHarmless } from "../../../src/files/tar/restate.ts";

test.each([
  ["tar: a: file changed as we read it", true],
  ["tar: a: File shrank by 512 bytes; padding with zeros", true],
  ["tar: Exiting with failure status due to previous errors", true],
  ["tar: a: Cannot open: No such file or directory", true],
  ["tar: a: Cannot open: Permission denied", false],
  ["tar: file changed as we read it: Cannot open", false],
  // With backtracking, such a line takes 20 ms, so a flood of them from a sandbox would use all of the service's time.
  [`${"shrank by ".repeat(1_600)}\rx`, true],
])("%#: what tar complains of", (line, harmless) => {
  expect(isHarmless(line)).toBe(harmless);
});
