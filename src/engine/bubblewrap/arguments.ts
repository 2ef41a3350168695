import { existsSync, lstatSync, readdirSync, readlinkSync } from "node:fs";
import path from "node:path";
import type { Resources } from "../port.ts";
import { BwrapProblem } from "./errors.ts";
import { SANDBOX_USER } from "./sandbox-user.ts";

/** The entries of the root directory that sandboxes see: programs, but no user's files. */
const SYSTEM = ["bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"];

/** Files that Docker also masks: they reveal the kernel's memory and keys, and activity on the host. */
const MASKED = ["/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug"];

/** Size of /dev/shm, which is separate from the sandbox's root file system. */
const SHARED_MEMORY_BYTES = 64 * 1024 * 1024;

/** The descriptors that bwrap gets in addition to its standard streams. */
export const BWRAP_FDS = { args: 4, info: 5, gate: 6, filter: 7, status: 8, mounts: 10 } as const;

interface BwrapPlan {
  /** From {@link systemArguments}. */
  readonly system: readonly string[];
  /** Arguments that show /etc. */
  readonly etc: readonly string[];
  readonly resources: Resources;
  /** Directories of the host, read-only. */
  readonly shown: readonly { readonly source: string; readonly target: string }[];
  /** Directories that are open as descriptors, starting with {@link BWRAP_FDS}.mounts. */
  readonly mounts: readonly {
    /** Path of the directory, to use instead of a descriptor. */
    readonly source?: string;
    readonly target: string;
    readonly readOnly: boolean;
  }[];
}

/** Arguments that show a root file system read-only. */
export function systemArguments(rootfs: string): string[] {
  const args: string[] = [];
  const names = rootfs === "/" ? SYSTEM : [...SYSTEM, "opt"];
  for (const name of listRoot(rootfs).filter((entry) => names.includes(entry))) {
    const source = path.join(rootfs, name);
    const kind = lstatSync(source);
    if (kind.isSymbolicLink()) args.push("--symlink", readlinkSync(source), `/${name}`);
    else if (kind.isDirectory()) args.push("--ro-bind", source, `/${name}`);
  }
  return args;
}

function listRoot(rootfs: string): string[] {
  try {
    return readdirSync(rootfs);
  } catch (error) {
    throw new BwrapProblem(
      `the root file system ${rootfs} cannot be read: ${(error as Error).message}`,
      "Pass a directory with a system to --rootfs, or leave it out for the machine's own",
      error,
    );
  }
}

/**
 * The arguments of `bwrap` for a sandbox. Everything writable is on one file system in memory, whose size limits the
 * total.
 *
 * A file that bwrap reads from {@link BWRAP_FDS}.gate makes it wait halfway. Until EOF there, the sandbox's outer user
 * namespace can be opened.
 *
 * Pass them through {@link BWRAP_FDS}.args, because sandboxes see the command line of process 1.
 */
export function bwrapArguments(plan: BwrapPlan): string[] {
  const { uid, gid, home } = SANDBOX_USER;
  return [
    ...["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"],
    ...["--unshare-cgroup-try", "--disable-userns", "--uid", String(uid), "--gid", String(gid)],
    ...["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"],
    ...["--size", String(plan.resources.diskBytes ?? plan.resources.memoryBytes), "--tmpfs", "/"],
    ...plan.system,
    ...["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"],
    ...MASKED.filter((name) => existsSync(name)).flatMap((name) => ["--ro-bind", "/dev/null", name]),
    ...[
      "--perms",
      "1777",
      "--size",
      String(SHARED_MEMORY_BYTES),
      "--tmpfs",
      "/dev/shm",
      "--remount-ro",
      "/dev",
    ],
    ...["--tmpfs", "/sys", ...plan.shown.flatMap(({ source, target }) => ["--ro-bind", source, target])],
    ...["--remount-ro", "/sys", ...plan.etc],
    ...["/tmp", "/var/tmp"].flatMap((dir) => ["--perms", "1777", "--dir", dir]),
    ...["/run", "/workspace", home].flatMap((dir) => ["--dir", dir]),
    ...plan.mounts.flatMap(({ source, target, readOnly }, index) =>
      source === undefined
        ? [readOnly ? "--ro-bind-fd" : "--bind-fd", String(BWRAP_FDS.mounts + index), target]
        : [readOnly ? "--ro-bind" : "--bind", source, target],
    ),
    ...["--info-fd", String(BWRAP_FDS.info), "--json-status-fd", String(BWRAP_FDS.status)],
    ...["--file", String(BWRAP_FDS.gate), "/run/started"],
    ...["--chdir", "/"],
  ];
}
