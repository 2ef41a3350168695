import { constants } from "node:os";
import { expect, test } from "vitest";
import { codeOf, isNoSpace } from "../../../src/base/system-errors.ts";
import { diskError } from "../../../src/workspaces/host/disk-errors.ts";

/** As created by Node, which has no name for this error. */
const overQuota = Object.assign(new Error("Unknown system error -122: Unknown system error -122, write"), {
  errno: -constants.errno.EDQUOT,
  code: "Unknown system error -122",
  syscall: "write",
});

test("an exhausted quota is not an unknown error", () => {
  expect(codeOf(overQuota)).toBe("EDQUOT");
  expect(isNoSpace(codeOf(overQuota))).toBe(true);
  expect(diskError(overQuota)).toMatchObject({
    reason: "NO_SPACE",
    message: expect.stringContaining("quota"),
  });
});
