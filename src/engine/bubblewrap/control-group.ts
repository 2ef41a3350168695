import { chownSync, rmdirSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../../base/errors.ts";
import { makeDirectories } from "../../base/make-directories.ts";
import { codeOf } from "../../base/system-errors.ts";
import { groupUsage } from "../outside/cgroup.ts";
import type { EngineUsage, Resources } from "../port.ts";
import type { Identity } from "./sandbox-user.ts";

/** What the service can limit with control groups on this machine. */
export interface GroupLimits {
  readonly memory: boolean;
  readonly cpu: boolean;
  readonly pids: boolean;
  readonly pause: boolean;
}

/** Creates control groups for sandboxes. */
export interface ControlGroups {
  readonly limits: GroupLimits;
  /** One line for the operator. */
  readonly description: string;
  /** Directories that contain a group for each sandbox. The janitor removes them when the service has ended. */
  readonly homes: readonly string[];
  /** {@link ControlGroup.joinFiles} of the group for the host's processes that serve sandboxes. */
  readonly attendants: readonly string[];
  /** @throws as {@link makeGroup} */
  create(name: string, resources: Resources): ControlGroup;
}

/** The control group of a sandbox, in every hierarchy. */
export interface ControlGroup {
  /** A process with one thread joins by writing `0` to each file. The sandboxes' host user has that permission. */
  readonly joinFiles: readonly string[];
  /** The parts of it that the sandbox sees, read-only. */
  readonly shown: readonly { readonly source: string; readonly target: string }[];
  set(resources: Resources): void;
  /** How often the OOM killer has killed in it. */
  oomKills(): number;
  /** Directories for {@link OutsideView}, if they exist. */
  readonly outside: { readonly processes?: string; readonly freezer?: string; readonly pids?: string };
  /** The usage that its controllers measure. */
  usage(): Partial<EngineUsage>;
  /** Removes it once its last process has ended. */
  remove(): Promise<void>;
}

/** For a service that cannot create control groups. */
export const NO_CONTROL_GROUPS: ControlGroups = {
  limits: { memory: false, cpu: false, pids: false, pause: false },
  description: "no control groups that this user may write",
  homes: [],
  attendants: [],
  create: () => ({
    joinFiles: [],
    shown: [],
    set() {},
    oomKills: () => 0,
    outside: {},
    usage: () => ({}),
    async remove() {},
  }),
};

/** The kernel allows a number of groups in all, and below each of them, and keeps removed ones that have page cache. */
const NO_ROOM = new Set(["EAGAIN", "ENOMEM", "ENOSPC"]);

/**
 * Makes the directories of a group, with limits and open to the sandboxes' host user. Leaves none on failure.
 * @throws `TOO_MANY_OPERATIONS` if the kernel has no room for it; the system's other errors.
 */
export function makeGroup(
  group: ControlGroup,
  directories: readonly string[],
  { uid, gid }: Identity,
  resources: Resources,
): ControlGroup {
  try {
    for (const directory of directories) makeDirectories(directory);
    for (const file of group.joinFiles) chownSync(file, uid, gid);
    group.set(resources);
    return group;
  } catch (error) {
    for (const directory of directories) removeEmpty(directory);
    const code = codeOf(error) ?? "";
    if (!NO_ROOM.has(code)) throw error;
    throw new BerthError(
      "TOO_MANY_OPERATIONS",
      `The kernel has no room for the control group of another sandbox now (${code}). Delete sandboxes, or try again later.`,
      { cause: error, retryAfterMs: 1000 },
    );
  }
}

function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // It was not made.
  }
}

/** The outer bwrap: a host process that counts in its sandbox's group. */
export const OWN_PROCESSES = 1;

/** {@link groupUsage} of a sandbox's groups, without {@link OWN_PROCESSES}, which may have ended. */
export function usageInside(directories: ReadonlyMap<string, string>): Partial<EngineUsage> {
  const { pids, ...rest } = groupUsage(directories);
  return pids === undefined ? rest : { ...rest, pids: Math.max(0, pids - OWN_PROCESSES) };
}

/** How long to wait for the last processes of a group to end. */
const REMOVE_MS = 10_000;

/** Removes a group's directory as soon as it has no processes. */
export async function removeGroup(dir: string): Promise<void> {
  const deadline = performance.now() + REMOVE_MS;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 100)) {
    try {
      return await rmdir(dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || performance.now() > deadline) throw error;
    }
    await sleep(pauseMs);
  }
}
