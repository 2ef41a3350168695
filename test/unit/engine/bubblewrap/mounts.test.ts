import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { openMounts } from "../../../../src/engine/bubblewrap/mounts.ts";
import { sandboxIdentity } from "../../../../src/engine/bubblewrap/sandbox-user.ts";
import { newDataDir } from "../../../support/settings.ts";

/** Makes opening files fail as the kernel would until the test is over: a machine cannot be brought to all of these. */
function failOpening(code: string): void {
  const spy = vi.spyOn(fs, "openSync").mockImplementation(() => {
    throw Object.assign(new Error(code), { code });
  });
  syncBuiltinESMExports();
  onTestFinished(() => {
    spy.mockRestore();
    syncBuiltinESMExports();
  });
}

/** The reason of the error for a mount whose directory cannot be opened. */
async function refusal(code: string): Promise<unknown> {
  const root = fs.realpathSync(newDataDir());
  const hostPath = path.join(root, "data");
  fs.mkdirSync(hostPath);
  const mount = { kind: "host", target: "/mnt/data", readOnly: false, giveToUser: false, hostPath } as const;
  failOpening(code);
  const opening = openMounts([mount], { allowed: [root], hidden: [] }, sandboxIdentity());
  return opening.then(
    () => undefined,
    (error) => error.reason,
  );
}

test.each(["EMFILE", "ENFILE", "ENOMEM"])(
  "a lack of room for a mount (%s) may be over soon",
  async (code) => {
    expect(await refusal(code)).toBe("TOO_MANY_OPERATIONS");
  },
);

test("a mount that has become a link is not allowed", async () => {
  expect(await refusal("ELOOP")).toBe("NOT_ALLOWED");
});
