import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { diagnoseDesktopPrograms } from "../../../src/sessions/diagnose.ts";

let rootfs: string;
beforeEach(async () => {
  rootfs = await mkdtemp(path.join(tmpdir(), "berth-rootfs-"));
});
afterEach(() => rm(rootfs, { recursive: true }));

/** Creates files in the test's root file system. */
async function install(...files: string[]): Promise<void> {
  for (const file of files) {
    await mkdir(path.dirname(path.join(rootfs, file)), { recursive: true });
    await writeFile(path.join(rootfs, file), "");
  }
}

const LIBRARIES = ["X11.so.6", "Xext.so.6", "Xtst.so.6", "Xrandr.so.2"].map((name) => `usr/lib/lib${name}`);

async function find(subject: string) {
  return (await diagnoseDesktopPrograms(rootfs)).find((finding) => finding.subject === subject);
}

test("names what is missing, and the packages that have it", async () => {
  await install("usr/bin/python3", ...LIBRARIES.slice(1));
  expect(await find("vm sessions")).toEqual({
    subject: "vm sessions",
    status: "limited",
    found: `there can be none: ${rootfs} has no Xvfb, libX11.so.6`,
    fix: expect.stringMatching(/apt-get install .*\bxvfb\b/),
  });
  expect(await find("browser sessions")).toMatchObject({
    status: "limited",
    found: `there can be none: ${rootfs} has no chromium`,
  });
});

test("names what desktops lack", async () => {
  await install("usr/bin/python3", "usr/bin/Xvfb", "usr/bin/openbox", "usr/bin/dbus-daemon", ...LIBRARIES);
  expect(await find("vm sessions")).toMatchObject({
    status: "limited",
    found: "they go without x11vnc, ffmpeg",
  });
});

test("accepts everything under other names and in other places", async () => {
  const optional = ["openbox", "dbus-daemon", "x11vnc", "ffmpeg"].map((name) => `usr/bin/${name}`);
  await install("usr/bin/python3", "usr/local/bin/Xvfb", ...optional, ...LIBRARIES);
  await install("usr/bin/google-chrome");
  expect(await diagnoseDesktopPrograms(rootfs)).toEqual([
    { subject: "vm sessions", status: "ok", found: "the programs they need are there" },
    { subject: "browser sessions", status: "ok", found: "the programs they need are there" },
  ]);
});
