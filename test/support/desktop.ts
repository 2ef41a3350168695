import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { ENGINES } from "./engines.ts";
import type { TestSettings } from "./settings.ts";

const script = fileURLToPath(new URL("../../scripts/desktop-rootfs.sh", import.meta.url));

/** The engines with what desktops and browsers need: with bubblewrap, the system of the image berth/desktop. */
export const DESKTOP_ENGINES: readonly {
  readonly name: "docker" | "bubblewrap";
  readonly settings: TestSettings;
}[] = ENGINES.map(({ name, settings }) => ({
  name,
  settings: name === "docker" ? settings : { ...settings, rootfs: desktopRootfs() },
}));

function desktopRootfs(): string {
  return execFileSync(script, ["--yes"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();
}
