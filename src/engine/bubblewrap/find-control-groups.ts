import { readdirSync, readFileSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import path from "node:path";
import { groupDirectories } from "../outside/group-directories.ts";
import { CgroupsV1 } from "./cgroup-v1.ts";
import { CgroupsV2 } from "./cgroup-v2.ts";
import { type ControlGroups, NO_CONTROL_GROUPS } from "./control-group.ts";
import type { Identity } from "./identity.ts";
import { isLeftover } from "./leftovers.ts";

/** Opens control groups for the sandboxes of a service of this name, and clears away those of services that are gone. */
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
    // A group with processes in it stays.
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
