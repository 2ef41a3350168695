import { chownSync, mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { throwIfAborted } from "../../core/errors.ts";
import type { EngineUsage } from "../../core/ports/engine.ts";
import type { Resources } from "../../core/sandbox/sandbox.ts";
import type { ControlGroup, ControlGroups, GroupLimits } from "./control-group.ts";
import { readCount, readWord, removeGroup, tryWrite } from "./group-files.ts";
import type { Identity } from "./identity.ts";

const PERIOD_US = 100_000;
const CONTROLLERS = ["memory", "cpu", "pids"] as const;
/** Of a group for the host's own processes, which are in no sandbox's bounds. */
const ATTENDANTS = "attendants";
const FREEZE_LOOK_MS = 2;
/** The outer bwrap, which is the host's and yet in its sandbox's group. */
const OWN_PROCESSES = 1;

/** Control groups of version 2, in the one hierarchy there is. */
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

  /** Works below the service's own group, `own`, where this user may; else undefined. */
  static open(own: string, name: string, identity: Identity): CgroupsV2 | undefined {
    const home = path.join(own, name);
    try {
      if (!enable(own)) makeRoom(own, `${name}-service`);
      mkdirSync(path.join(home, ATTENDANTS), { recursive: true });
      enable(home);
      // Who moves between two groups has to be allowed to write in the one that holds both.
      chownSync(path.join(home, "cgroup.procs"), identity.uid, identity.gid);
      return new CgroupsV2(home, readWord(path.join(home, "cgroup.subtree_control")).split(" "), identity);
    } catch {
      return undefined;
    }
  }

  create(name: string, resources: Resources): ControlGroup {
    const dir = path.join(this.#home, name);
    mkdirSync(dir, { recursive: true });
    const group = new GroupV2(dir);
    for (const file of group.joinFiles) chownSync(file, this.#identity.uid, this.#identity.gid);
    group.set(resources);
    return group;
  }
}

/** Passes what a group has on to those below it. Whether it has all of that, or there is nothing to pass on. */
function enable(dir: string): boolean {
  const offered = readWord(path.join(dir, "cgroup.controllers")).split(" ");
  const wanted = CONTROLLERS.filter((controller) => offered.includes(controller));
  return wanted.every((controller) => tryWrite(path.join(dir, "cgroup.subtree_control"), `+${controller}`));
}

/** A group with processes of its own passes nothing on; where the service is alone in it, it moves one level down. */
function makeRoom(own: string, name: string): void {
  const pids = readFileSync(path.join(own, "cgroup.procs"), "utf8").split("\n").filter(Boolean);
  if (pids.length !== 1 || pids[0] !== String(process.pid)) return;
  const below = path.join(own, name);
  mkdirSync(below, { recursive: true });
  if (tryWrite(path.join(below, "cgroup.procs"), String(process.pid))) enable(own);
}

class GroupV2 implements ControlGroup {
  readonly joinFiles: readonly string[];
  readonly shown: readonly { source: string; target: string }[];
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
    this.joinFiles = [path.join(dir, "cgroup.procs")];
    this.shown = [{ source: dir, target: "/sys/fs/cgroup" }];
  }

  set({ memoryBytes, cpuMillis, pidsLimit }: Resources): void {
    this.#write("memory.max", String(memoryBytes));
    this.#write("memory.swap.max", "0");
    this.#write("cpu.max", `${Math.max(1000, (cpuMillis * PERIOD_US) / 1000)} ${PERIOD_US}`);
    this.#write("pids.max", String(pidsLimit + OWN_PROCESSES));
  }

  async freeze(signal?: AbortSignal): Promise<void> {
    this.#write("cgroup.freeze", "1");
    try {
      while (readCount(this.#file("cgroup.events"), "frozen") === 0) {
        await sleep(FREEZE_LOOK_MS);
        throwIfAborted(signal);
      }
    } catch (error) {
      this.thaw();
      throw error;
    }
  }

  thaw(): void {
    this.#write("cgroup.freeze", "0");
  }

  oomKills(): number {
    return readCount(this.#file("memory.events"), "oom_kill") ?? 0;
  }

  usage(): Partial<EngineUsage> {
    const memory = readCount(this.#file("memory.current"));
    const cache = readCount(this.#file("memory.stat"), "inactive_file") ?? 0;
    const cpuMicros = readCount(this.#file("cpu.stat"), "usage_usec");
    const pids = readCount(this.#file("pids.current"));
    return {
      ...(memory !== undefined && { memoryBytes: Math.max(0, memory - cache) }),
      ...(cpuMicros !== undefined && { cpuNanos: cpuMicros * 1000 }),
      ...(pids !== undefined && { pids: pids - OWN_PROCESSES }),
    };
  }

  remove(): Promise<void> {
    return removeGroup(this.#dir);
  }

  #file(file: string): string {
    return path.join(this.#dir, file);
  }

  #write(file: string, text: string): void {
    tryWrite(this.#file(file), text);
  }
}
