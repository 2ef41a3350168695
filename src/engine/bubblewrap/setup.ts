import { closeSync, readdirSync, readFileSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import path from "node:path";
import type { Logger } from "../../base/logger.ts";
import { groupDirectories } from "../outside/cgroup.ts";
import type { EngineInfo } from "../port.ts";
import { systemArguments } from "./arguments.ts";
import { CgroupsV1 } from "./cgroup-v1.ts";
import { CgroupsV2 } from "./cgroup-v2.ts";
import { type ControlGroups, NO_CONTROL_GROUPS } from "./control-group.ts";
import { findFilter } from "./filter.ts";
import { describeEngine } from "./info.ts";
import { isLeftover, Janitor, ownName } from "./janitor.ts";
import { ENTRY_COMMAND, ENTRY_WIDTH } from "./job-script.ts";
import { Launcher, Reports } from "./launcher.ts";
import { type BwrapProgram, findBwrap, probeEntry, probeSandbox } from "./probe.ts";
import { createRuntimeDir, type FilterFiles, keepRuntimeDir } from "./runtime-dir.ts";
import { type Identity, sandboxIdentity } from "./sandbox-user.ts";

/** Everything that the sandboxes of a running engine share. */
export interface BubblewrapSetup {
  readonly program: BwrapProgram;
  readonly info: EngineInfo;
  readonly identity: Identity;
  readonly groups: ControlGroups;
  readonly reports: Reports;
  /** Starts the keepers of sandboxes, from their scripts. */
  readonly keepers: Launcher;
  readonly attendants: Launcher;
  /** Arguments of bwrap for the system's directories. */
  readonly system: readonly string[];
  /** As in {@link RuntimeDir}. */
  readonly etc: readonly string[];
  /** Undefined if sandboxes have no filter of system calls. */
  readonly filterFiles: FilterFiles | undefined;
  /** As in {@link RuntimeDir}. */
  readonly stage: string;
  /** Removes everything. All sandboxes must be gone. */
  close(): Promise<void>;
}

/**
 * Checks, by creating one, that sandboxes can be created here, and prepares the machine.
 * @throws BwrapProblem that says what is missing and how to fix it.
 */
export async function openSetup(rootfs: string, logger: Logger): Promise<BubblewrapSetup> {
  const program = await findBwrap();
  const identity = sandboxIdentity();
  const system = systemArguments(rootfs);
  await probeSandbox(identity, system);
  const name = ownName();
  const groups = await findControlGroups(name, identity);
  const filter = findFilter();
  const runtime = await createRuntimeDir(name, rootfs, typeof filter === "string" ? undefined : filter);
  const janitor = new Janitor(runtime.path, groups.homes, logger);
  try {
    if (runtime.filterFiles !== undefined) await probeEntry(identity, runtime.filterFiles.entry);
  } catch (error) {
    await janitor.finish();
    throw error;
  }
  const kept = keepRuntimeDir(runtime.path);
  const reports = new Reports();
  const onGroup = (group: number) => janitor.endWithService(group);
  const common = { identity, joinFiles: groups.attendants, reports, onGroup };
  const keepers = new Launcher({ ...common, command: ["/bin/sh", "-c"], width: 1, nothing: [":"] });
  const attendants = new Launcher({
    ...common,
    command: ENTRY_COMMAND,
    width: ENTRY_WIDTH,
    nothing: Array.from({ length: ENTRY_WIDTH }, () => "--version"),
  });
  return {
    ...{ program, identity, groups, reports, keepers, attendants },
    ...{ system, etc: runtime.etc, filterFiles: runtime.filterFiles, stage: runtime.stage },
    info: describeEngine(program, groups.limits, runtime.filterFiles !== undefined),
    close: async () => {
      kept[Symbol.dispose]();
      await Promise.all([keepers.close(), attendants.close()]);
      await janitor.finish();
    },
  };
}

/** Opens control groups for the sandboxes of the service with this name, and removes those of dead services. */
export async function findControlGroups(name: string, identity: Identity): Promise<ControlGroups> {
  let own: Map<string, string>;
  try {
    own = groupDirectories(
      readFileSync("/proc/self/cgroup", "utf8"),
      readFileSync("/proc/self/mountinfo", "utf8"),
    );
  } catch {
    return NO_CONTROL_GROUPS;
  }
  const unified = own.get("");
  const groups =
    CgroupsV1.open(own, name, identity) ??
    (unified ? CgroupsV2.open(unified, name, identity) : undefined) ??
    NO_CONTROL_GROUPS;
  const parents = groups.homes.map((home) => path.dirname(home));
  for (const dir of new Set([...own.values(), ...parents])) await clearLeftovers(dir);
  return groups;
}

async function clearLeftovers(parent: string): Promise<void> {
  for (const name of list(parent).filter(isLeftover)) {
    const home = path.join(parent, name);
    // A group that contains processes stays.
    for (const group of list(home)) await rmdir(path.join(home, group)).catch(() => {});
    await rmdir(home).catch(() => {});
  }
}

function list(dir: string): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [entry.name] : [],
    );
  } catch {
    return [];
  }
}

const O_CLOEXEC = 0o2000000;

/**
 * Closes descriptors that the service inherited, except the standard streams: sandboxes would inherit them too.
 * Descriptors that Node itself opened are close-on-exec, which distinguishes them.
 */
export function closeInheritedDescriptors(): void {
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    if (fd > 2 && isInherited(fd)) closeSync(fd);
  }
}

function isInherited(fd: number): boolean {
  try {
    const flags = /^flags:\s+([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    // This was the descriptor that listed the directory; it is closed by now.
    return false;
  }
}
