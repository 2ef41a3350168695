import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { DESKTOP_IMAGE } from "./images.ts";
import type { TestSettings } from "./settings.ts";

const ROOTFS_SCRIPT = fileURLToPath(new URL("../../scripts/desktop-rootfs.sh", import.meta.url));

/**
 * The engines, for suites of sessions with a screen or a browser: as
 * {@link ENGINES}, but with the system of the desktop image. Sandboxes that a
 * test makes by itself have that image by default, too.
 */
export const DESKTOP_ENGINES: readonly {
  readonly name: "docker" | "bubblewrap";
  readonly settings: TestSettings;
}[] = [
  { name: "docker", settings: { engine: "docker", defaults: { image: DESKTOP_IMAGE } } },
  {
    name: "bubblewrap",
    settings: { engine: "bubblewrap", rootfs: execFileSync(ROOTFS_SCRIPT, ["--yes"]).toString().trim() },
  },
];
