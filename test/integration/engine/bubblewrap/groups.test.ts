import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { expect, onTestFinished, test, vi } from "vitest";
import { failure, spec } from "../docker/support.ts";
import { useBubblewrap } from "./support.ts";

const engine = useBubblewrap();

/** Makes the making of a sandbox's control group fail as the kernel would until the test is over. */
function failGroups(code: string): void {
  const mkdirSync = fs.mkdirSync;
  const spy = vi.spyOn(fs, "mkdirSync").mockImplementation((place, options) => {
    if (String(place).includes("/bwrap-")) throw Object.assign(new Error(code), { code });
    return mkdirSync(place, options);
  });
  syncBuiltinESMExports();
  onTestFinished(() => {
    spy.mockRestore();
    syncBuiltinESMExports();
  });
}

test.each([
  ["ENOSPC", "TOO_MANY_OPERATIONS"],
  ["EROFS", "ENGINE_UNAVAILABLE"],
] as const)(
  "a control group that cannot be made because of %s fails its create with a reason",
  async (code, reason) => {
    await engine.info();
    failGroups(code);
    await failure(engine.create(spec()), reason);
    expect(await engine.list()).toEqual([]);
  },
);
