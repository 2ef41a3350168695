import { readdir } from "node:fs/promises";
import path from "node:path";
import type { Finding } from "../base/diagnosis.ts";

/** What sessions of a type need from the root file system of their sandboxes. */
interface Needs {
  readonly resourceType: string;
  /** Each entry is a program, or alternatives of which one is enough. */
  readonly programs: readonly (readonly string[])[];
  readonly libraries: readonly string[];
  /** Missing ones only disable a feature. */
  readonly optional: readonly string[];
  /** Package names on Debian and Ubuntu. */
  readonly packages: readonly string[];
}

const FONTS = ["fonts-liberation", "fonts-noto-core", "fonts-noto-cjk", "fonts-noto-color-emoji"];

const NEEDS: readonly Needs[] = [
  {
    resourceType: "vm",
    programs: [["python3"], ["Xvfb"]],
    libraries: ["libX11.so.6", "libXext.so.6", "libXtst.so.6", "libXrandr.so.2"],
    optional: ["openbox", "dbus-daemon", "x11vnc", "ffmpeg"],
    packages: [
      ...["xvfb", "openbox", "python3", "libxtst6", "libxrandr2", "at-spi2-core", "dbus-daemon"],
      ...["x11vnc", "ffmpeg", "xterm", "fonts-noto-mono", ...FONTS],
    ],
  },
  {
    resourceType: "browser",
    programs: [["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"]],
    libraries: [],
    optional: [],
    packages: ["chromium", ...FONTS],
  },
];

const PROGRAM_DIRS = ["usr/local/bin", "usr/bin", "bin"];
const LIBRARY_DIRS = ["usr/local/lib", "usr/lib", "usr/lib64", "lib", "lib64"];

/**
 * Checks whether a root file system has what desktops and browsers need, for sandboxes that use it instead of an image.
 */
export async function diagnoseDesktopPrograms(rootfs: string): Promise<Finding[]> {
  const programs = await namesIn(rootfs, PROGRAM_DIRS);
  // Debian keeps libraries in a directory named after the architecture.
  const libraryDirs = LIBRARY_DIRS.flatMap((dir) => [
    dir,
    `${dir}/${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu`,
  ]);
  const libraries = await namesIn(rootfs, libraryDirs);
  const install = (packages: readonly string[]): string =>
    rootfs === "/"
      ? `sudo apt-get install --no-install-recommends ${packages.join(" ")}`
      : `Install in ${rootfs}, by chroot: apt-get install --no-install-recommends ${packages.join(" ")}`;
  return NEEDS.map((needs) => {
    const subject = `${needs.resourceType} sessions`;
    const missing = [
      ...needs.programs.filter((names) => !names.some((name) => programs.has(name))).map(([name]) => name),
      ...needs.libraries.filter((name) => !libraries.has(name)),
    ];
    const without = needs.optional.filter((name) => !programs.has(name));
    if (missing.length > 0) {
      return {
        subject,
        status: "limited",
        found: `there can be none: ${rootfs} has no ${missing.join(", ")}`,
        fix: install(needs.packages),
      };
    }
    if (without.length > 0) {
      const found = `they go without ${without.join(", ")}`;
      return { subject, status: "limited", found, fix: install(needs.packages) };
    }
    return { subject, status: "ok", found: "the programs they need are there" };
  });
}

async function namesIn(rootfs: string, dirs: readonly string[]): Promise<ReadonlySet<string>> {
  const lists = await Promise.all(dirs.map((dir) => readdir(path.join(rootfs, dir)).catch(() => [])));
  return new Set(lists.flat());
}
