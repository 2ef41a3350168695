import { cpSync, lstatSync } from "node:fs";
import { lutimes, mkdir, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { makeDirectories } from "../../base/make-directories.ts";
import { undumpableLibrary } from "../undumpable.ts";
import type { SystemCallFilter } from "./filter.ts";
import { isLeftover } from "./janitor.ts";
import { SANDBOX_USER } from "./sandbox-user.ts";

/** The files of a running engine. */
interface RuntimeDir {
  readonly path: string;
  /** Arguments of bwrap that show the /etc of its sandboxes. */
  readonly etc: readonly string[];
  /** Undefined if there is no filter. */
  readonly filterFiles: FilterFiles | undefined;
  /**
   * A directory that is empty on the host. A sandbox's mounts are staged below it, in the mount namespace of its bwrap.
   */
  readonly stage: string;
}

/** Paths of a {@link SystemCallFilter}'s two parts. */
export interface FilterFiles {
  readonly program: string;
  readonly entry: string;
}

/** Creates the directory, and removes the directories of dead services. */
export async function createRuntimeDir(
  name: string,
  rootfs: string,
  filter: SystemCallFilter | undefined,
): Promise<RuntimeDir> {
  const parent = tmpdir();
  for (const entry of (await readdir(parent)).filter(isLeftover)) await clear(path.join(parent, entry));
  const dir = path.join(parent, name);
  // Fails if it exists, so that no other user's directory is used. The sandboxes' host user reads /etc through it.
  await mkdir(dir, { mode: 0o755 });
  const etc = path.join(dir, "etc");
  const mounted = await writeSyntheticEtc(etc, rootfs);
  const stage = path.join(dir, "mounts");
  await mkdir(stage, { mode: 0o755 });
  const filterFiles = filter && (await writeFilter(dir, filter));
  return { path: dir, etc: ["--ro-bind", etc, "/etc", ...mounted], filterFiles, stage };
}

/** Well below the ten days after which cleaners of /tmp, such as systemd-tmpfiles, remove unused files. */
const TOUCH_MS = 12 * 3_600_000;

/**
 * Keeps cleaners of /tmp from removing the directory's contents while the service runs: sandboxes read them through
 * read-only mounts, which do not update access times.
 */
export function keepRuntimeDir(dir: string): Disposable {
  const timer = setInterval(() => void touchAll(dir).catch(() => {}), TOUCH_MS).unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function touchAll(dir: string): Promise<void> {
  const now = new Date();
  for (const entry of [".", ...(await readdir(dir, { recursive: true }))])
    await lutimes(path.join(dir, entry), now, now).catch(() => {});
}

async function writeFilter(dir: string, { program, entry }: SystemCallFilter): Promise<FilterFiles> {
  const files = { program: path.join(dir, "filter"), entry: path.join(dir, "enter") };
  await writeFile(files.program, program, { mode: 0o444 });
  await writeFile(files.entry, entry, { mode: 0o555 });
  return files;
}

async function clear(dir: string): Promise<void> {
  try {
    if ((await stat(dir)).uid === process.getuid?.()) await rm(dir, { recursive: true, force: true });
  } catch {
    // The next start of a service tries again.
  }
}

const UNDUMPABLE = "berth-undumpable.so";
/** Path, inside sandboxes, of the library that shells preload to be undumpable. */
export const UNDUMPABLE_TARGET = `/etc/${UNDUMPABLE}`;

/**
 * Like {@link COPIED}, but with hundreds of entries: copying them would take most of the start. They are mounted
 * instead.
 */
const MOUNTED = ["X11", "alternatives", "fonts", "ssl/certs"];

/** The parts of /etc that programs need and that reveal nothing about the machine or its users. */
const COPIED = [
  "ImageMagick-6",
  "ImageMagick-7",
  "bash.bashrc",
  "ca-certificates",
  "ca-certificates.conf",
  "chromium",
  "chromium.d",
  "debian_version",
  "gai.conf",
  "inputrc",
  "ld.so.cache",
  "ld.so.conf",
  "ld.so.conf.d",
  "locale.alias",
  "localtime",
  "lsb-release",
  "magic",
  "mime.types",
  "openbox",
  "os-release",
  "perl",
  "pki/tls/certs",
  "pki/ca-trust/extracted",
  "protocols",
  "python3",
  "rpc",
  "services",
  "ssl/openssl.cnf",
  "terminfo",
  "timezone",
  "xdg",
];

/**
 * Writes the /etc that sandboxes see: harmless parts of the system's /etc, and one user. Returns arguments of bwrap for
 * the parts that are mounted over it.
 */
async function writeSyntheticEtc(dir: string, rootfs: string): Promise<string[]> {
  await mkdir(dir, { mode: 0o755 });
  const mounted: string[] = [];
  for (const name of [...MOUNTED, ...COPIED]) {
    const source = path.join(rootfs, "etc", name);
    makeDirectories(path.dirname(path.join(dir, name)), 0o755);
    if (MOUNTED.includes(name) && lstatSync(source, { throwIfNoEntry: false })?.isDirectory()) {
      await mkdir(path.join(dir, name), { mode: 0o755 });
      // It may disappear while the service runs, for instance if its package is removed.
      mounted.push("--ro-bind-try", source, `/etc/${name}`);
      continue;
    }
    try {
      // No calls are served yet, and the asynchronous version uses twice the CPU time.
      cpSync(source, path.join(dir, name), { recursive: true, verbatimSymlinks: true });
    } catch {
      // Leave out what is missing or unreadable.
    }
  }
  const { name, uid, gid, home } = SANDBOX_USER;
  const files: Readonly<Record<string, string>> = {
    passwd: `root:x:0:0:root:/root:/usr/sbin/nologin\n${name}:x:${uid}:${gid}::${home}:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n`,
    group: `root:x:0:\n${name}:x:${gid}:\nnogroup:x:65534:\n`,
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    hosts: "127.0.0.1 localhost\n::1 localhost\n",
    "resolv.conf": "",
    hostname: "sandbox\n",
    profile: "PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\nexport PATH\n",
  };
  for (const [file, text] of Object.entries(files)) {
    await writeFile(path.join(dir, file), text, { mode: 0o644 });
  }
  await symlink("/proc/self/mounts", path.join(dir, "mtab"));
  const library = undumpableLibrary();
  if (library !== undefined) await writeFile(path.join(dir, UNDUMPABLE), library, { mode: 0o644 });
  return mounted;
}
