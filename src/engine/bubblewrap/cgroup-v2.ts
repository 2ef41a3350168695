import { chownSync, existsSync } from "node:fs";
import path from "node:path";
import { makeDirectories } from "../../base/make-directories.ts";
import { readCount, readGroupFile, writeGroupFile } from "../outside/cgroup.ts";
import { readText } from "../outside/host-process.ts";
import type { EngineUsage, Resources } from "../port.ts";
import type { ControlGroup, ControlGroups, GroupLimits } from "./control-group.ts";
import { makeGroup, OWN_PROCESSES, removeGroup, usageInside } from "./control-group.ts";
import type { Identity } from "./sandbox-user.ts";

const PERIOD_US = 100_000;
const CONTROLLERS = ["memory", "cpu", "pids"] as const;
/** Name of the group for the host's processes that serve sandboxes, outside every sandbox's limits. */
const ATTENDANTS = "attendants";

/** Control groups of version 2, which has a single hierarchy. */
export class CgroupsV2 implements ControlGroups {
  readonly limits: GroupLimits;
  readonly description: string;
  readonly homes: readonly string[];
  readonly attendants: readonly string[];
  readonly #home: string;
  readonly #identity: Identity;

  private constructor(home: string, enabled: readonly string[], identity: Identity) {
    this.#home = home;
    this.#identity = identity;
    this.attendants = [path.join(home, ATTENDANTS, "cgroup.procs")];
    this.homes = [home];
    this.limits = {
      memory: enabled.includes("memory"),
      cpu: enabled.includes("cpu"),
      pids: enabled.includes("pids"),
      pause: true,
    };
    this.description = `cgroup v2: ${enabled.join(", ") || "no controllers"}`;
  }

  /**
   * Creates groups below the service's own group, `own`, or below the nearest usable group above it; undefined if this
   * user is not allowed to (docs/engines/bubblewrap.md).
   */
  static open(own: string, name: string, identity: Identity): CgroupsV2 | undefined {
    const home = path.join(parentOfHome(own, name), name);
    try {
      makeDirectories(path.join(home, ATTENDANTS));
      enable(home);
      // To move a process between two groups, a user needs write access to their common ancestor.
      chownSync(path.join(home, "cgroup.procs"), identity.uid, identity.gid);
      return new CgroupsV2(home, wordsOf(path.join(home, "cgroup.subtree_control")), identity);
    } catch {
      return undefined;
    }
  }

  create(name: string, resources: Resources): ControlGroup {
    const dir = path.join(this.#home, name);
    return makeGroup(new GroupV2(dir), [dir], this.#identity, resources);
  }
}

/**
 * The parent of the sandboxes' home group. A group that contains processes cannot delegate controllers, except the
 * root.
 */
function parentOfHome(own: string, name: string): string {
  if (enable(own) || (makeRoom(own, `${name}-service`) && enable(own))) return own;
  // Never leave a group that has limits: they are meant for everything that the service runs.
  for (let dir = own; !isBounded(dir); ) {
    dir = path.dirname(dir);
    if (!existsSync(path.join(dir, "cgroup.controllers"))) break;
    if (enable(dir)) return dir;
  }
  return own;
}

/** Delegates a group's controllers to the groups below it. Returns whether there are any and all were delegated. */
function enable(dir: string): boolean {
  const offered = wordsOf(path.join(dir, "cgroup.controllers"));
  const wanted = CONTROLLERS.filter((controller) => offered.includes(controller));
  const file = path.join(dir, "cgroup.subtree_control");
  return wanted.length > 0 && wanted.every((controller) => writeGroupFile(file, `+${controller}`));
}

function wordsOf(file: string): string[] {
  return (readGroupFile(file) ?? "").split(" ");
}

/** Moves the service, and the program that started it, one level down, if they are alone in their group. */
function makeRoom(own: string, name: string): boolean {
  const pids = (readGroupFile(path.join(own, "cgroup.procs")) ?? "").split("\n").map(Number);
  if (pids.some((pid) => pid !== process.pid && !isLauncher(pid))) return false;
  const below = path.join(own, name);
  try {
    makeDirectories(below);
  } catch {
    return false;
  }
  return pids.every((pid) => writeGroupFile(path.join(below, "cgroup.procs"), String(pid)));
}

/** Whether a process is `berth` on an older Node, which runs the service as its child. */
function isLauncher(pid: number): boolean {
  return (
    pid === process.ppid &&
    readText(`/proc/${pid}/cmdline`)
      ?.split("\0")[1]
      ?.match(/\bberth(\.mjs)?$/) != null
  );
}

function isBounded(dir: string): boolean {
  const bounds = ["memory.max", "memory.high", "cpu.max"].map(
    (file) => readGroupFile(path.join(dir, file)) ?? "",
  );
  return bounds.some((bound) => bound !== "" && !bound.startsWith("max"));
}

class GroupV2 implements ControlGroup {
  readonly joinFiles: readonly string[];
  readonly shown: readonly { source: string; target: string }[];
  readonly outside: ControlGroup["outside"];
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
    this.outside = { processes: dir, freezer: dir, pids: dir };
    this.joinFiles = [path.join(dir, "cgroup.procs")];
    this.shown = [{ source: dir, target: "/sys/fs/cgroup" }];
  }

  set({ memoryBytes, cpuMillis, pidsLimit }: Resources): void {
    this.#write("memory.max", String(memoryBytes));
    this.#write("memory.swap.max", "0");
    this.#write("cpu.max", `${Math.max(1000, (cpuMillis * PERIOD_US) / 1000)} ${PERIOD_US}`);
    this.#write("pids.max", String(pidsLimit + OWN_PROCESSES));
  }

  oomKills(): number {
    return readCount(this.#file("memory.events"), "oom_kill") ?? 0;
  }

  usage(): Partial<EngineUsage> {
    return usageInside(new Map([["", this.#dir]]));
  }

  remove(): Promise<void> {
    return removeGroup(this.#dir);
  }

  #file(file: string): string {
    return path.join(this.#dir, file);
  }

  #write(file: string, text: string): void {
    writeGroupFile(this.#file(file), text);
  }
}
