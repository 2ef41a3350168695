import path from "node:path";
import { makeDirectories } from "../../base/make-directories.ts";
import { readCount, writeGroupFile } from "../outside/cgroup.ts";
import type { EngineUsage, Resources } from "../port.ts";
import type { ControlGroup, ControlGroups } from "./control-group.ts";
import { makeGroup, OWN_PROCESSES, removeGroup, usageInside } from "./control-group.ts";
import type { Identity } from "./sandbox-user.ts";

const PERIOD_US = 100_000;

/** The directories of the service's own groups, by controller. */
type Hierarchies = ReadonlyMap<string, string>;

/** Control groups of version 1, where each controller has its own hierarchy. */
export class CgroupsV1 implements ControlGroups {
  readonly limits;
  readonly description;
  readonly homes: readonly string[];
  /** Empty: they stay in the service's groups. */
  readonly attendants: readonly string[] = [];
  readonly #homes: ReadonlyMap<string, string>;
  readonly #identity: Identity;

  private constructor(homes: ReadonlyMap<string, string>, identity: Identity) {
    this.#homes = homes;
    this.#identity = identity;
    this.homes = [...new Set(homes.values())];
    this.limits = {
      memory: homes.has("memory"),
      cpu: homes.has("cpu"),
      pids: homes.has("pids"),
      pause: homes.has("freezer"),
    };
    this.description = `cgroup v1: ${[...homes.keys()].join(", ")}`;
  }

  /**
   * Uses the hierarchies in which this user may create groups below the service's own group; undefined if there are
   * none.
   */
  static open(hierarchies: Hierarchies, name: string, identity: Identity): CgroupsV1 | undefined {
    const homes = new Map<string, string>();
    for (const controller of ["memory", "cpu", "cpuacct", "pids", "freezer"]) {
      const parent = hierarchies.get(controller);
      if (parent === undefined) continue;
      const home = path.join(parent, name);
      try {
        makeDirectories(home);
        homes.set(controller, home);
      } catch {
        // This user has no write permission there.
      }
    }
    return homes.size === 0 ? undefined : new CgroupsV1(homes, identity);
  }

  create(name: string, resources: Resources): ControlGroup {
    const dirs = new Map([...this.#homes].map(([controller, home]) => [controller, path.join(home, name)]));
    return makeGroup(new GroupV1(dirs), [...dirs.values()], this.#identity, resources);
  }
}

class GroupV1 implements ControlGroup {
  readonly #dirs: ReadonlyMap<string, string>;
  readonly joinFiles: readonly string[];
  readonly shown: readonly { source: string; target: string }[];
  readonly outside: ControlGroup["outside"];

  constructor(dirs: ReadonlyMap<string, string>) {
    this.#dirs = dirs;
    // A thread can move itself without waiting; moving a whole process may block in the kernel.
    this.joinFiles = [...new Set(dirs.values())].map((dir) => path.join(dir, "tasks"));
    const [processes] = dirs.values();
    const [freezer, pids] = [dirs.get("freezer"), dirs.get("pids")];
    this.outside = { ...(processes && { processes }), ...(freezer && { freezer }), ...(pids && { pids }) };
    this.shown = ["memory", "pids"].flatMap((controller) => {
      const source = dirs.get(controller);
      return source === undefined ? [] : [{ source, target: `/sys/fs/cgroup/${controller}` }];
    });
  }

  set({ memoryBytes, cpuMillis, pidsLimit }: Resources): void {
    const memory = String(memoryBytes);
    // The first limit may never exceed the second, so the order depends on the direction of the change: write both
    // twice.
    const bounds = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
    for (const file of [...bounds, ...bounds]) this.#write("memory", file, memory);
    this.#write("cpu", "cpu.cfs_period_us", String(PERIOD_US));
    this.#write("cpu", "cpu.cfs_quota_us", String(Math.max(1000, (cpuMillis * PERIOD_US) / 1000)));
    this.#write("pids", "pids.max", String(pidsLimit + OWN_PROCESSES));
  }

  oomKills(): number {
    return readCount(this.#file("memory", "memory.oom_control"), "oom_kill") ?? 0;
  }

  usage(): Partial<EngineUsage> {
    return usageInside(this.#dirs);
  }

  async remove(): Promise<void> {
    for (const dir of new Set(this.#dirs.values())) await removeGroup(dir);
  }

  #file(controller: string, file: string): string {
    return path.join(this.#dirs.get(controller) ?? "/nonexistent", file);
  }

  #write(controller: string, file: string, text: string): boolean {
    return this.#dirs.has(controller) && writeGroupFile(this.#file(controller, file), text);
  }
}
