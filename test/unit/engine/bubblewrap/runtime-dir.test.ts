import {
  lstatSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { keepRuntimeDir } from "../../../../src/engine/bubblewrap/runtime-dir.ts";

const DAY_MS = 24 * 3_600_000;

test("files of the runtime directory never get a day old, so that no cleaner of /tmp removes them", async () => {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-runtime-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  mkdirSync(path.join(dir, "etc/ssl"), { recursive: true });
  mkdirSync(path.join(dir, "mounts"));
  writeFileSync(path.join(dir, "etc/ssl/openssl.cnf"), "");
  symlinkSync("/proc/self/mounts", path.join(dir, "etc/mtab"));
  const all = [".", ...readdirSync(dir, { recursive: true, encoding: "utf8" })];
  const old = new Date(Date.now() - 30 * DAY_MS);
  for (const each of all) lutimesSync(path.join(dir, each), old, old);

  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  using _ = keepRuntimeDir(dir);
  vi.advanceTimersByTime(DAY_MS);
  vi.useRealTimers();
  const ages = () =>
    all.map((each) => {
      const { atimeMs, mtimeMs } = lstatSync(path.join(dir, each));
      return [each, Math.min(atimeMs, mtimeMs) > old.getTime() + DAY_MS];
    });
  await expect.poll(ages).toEqual(all.map((each) => [each, true]));
});
