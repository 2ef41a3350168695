import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { throwIfAborted } from "../../base/errors.ts";
import { withSpareDescriptors } from "../../base/spare-descriptors.ts";
import type { EngineUsage } from "../port.ts";

/** Whether the processes of a sandbox are frozen. */
export type Stillness =
  /** Frozen by the {@link Freezer}, for a moment. */
  | "frozen"
  /** Frozen by a pause of the sandbox. */
  | "paused"
  | "running";

/** Freezes the processes of a sandbox for a moment. */
export interface Freezer {
  readonly paused: boolean;
  /** Ends a pause. */
  thaw(): void;
  /** Runs `act` while the processes are frozen. If they do not freeze in time, it runs anyway: see its argument. */
  frozen<T>(act: (stillness: Stillness) => Promise<T>): Promise<T>;
}

/** For a sandbox whose processes cannot be frozen. */
export const NO_FREEZER: Freezer = { paused: false, thaw() {}, frozen: (act) => act("running") };

const LOOK_MS = 2;
/** How long to wait for the freeze: a process may be in the kernel for longer, for instance on a slow disk. */
const FREEZE_MS = 250;

/** Freezes a control group, of version 1 (in the freezer's hierarchy) or of version 2. */
export class GroupFreezer implements Freezer {
  readonly #isV2: boolean;
  readonly #file: string;
  readonly #events: string;

  constructor(directory: string) {
    // Needs no descriptor, of which there may be none left.
    this.#isV2 = existsSync(path.join(directory, "cgroup.freeze"));
    this.#file = path.join(directory, this.#isV2 ? "cgroup.freeze" : "freezer.state");
    this.#events = path.join(directory, "cgroup.events");
  }

  get paused(): boolean {
    return /^(1|FROZEN|FREEZING)$/.test(readGroupFile(this.#file) ?? "");
  }

  /** Freezes the processes until {@link thaw}, however long it takes until they have stopped. */
  async pause(signal?: AbortSignal): Promise<void> {
    this.#freeze();
    try {
      while (this.#state === "freezing") {
        await sleep(LOOK_MS);
        throwIfAborted(signal);
        this.#freeze();
      }
    } catch (error) {
      this.thaw();
      throw error;
    }
  }

  thaw(): void {
    writeGroupFile(this.#file, this.#isV2 ? "0" : "THAWED");
  }

  async frozen<T>(act: (stillness: Stillness) => Promise<T>): Promise<T> {
    if (this.paused) return act("paused");
    const deadline = performance.now() + FREEZE_MS;
    try {
      while (this.#freeze() && this.#state !== "frozen" && performance.now() < deadline) await sleep(LOOK_MS);
      return await act(this.#state === "frozen" ? "frozen" : "running");
    } finally {
      this.thaw();
    }
  }

  /** Repeat it until the group is frozen: version 1 may miss a process that is being forked. */
  #freeze(): boolean {
    return writeGroupFile(this.#file, this.#isV2 ? "1" : "FROZEN");
  }

  get #state(): "frozen" | "freezing" | undefined {
    const state = this.#isV2 ? readCount(this.#events, "frozen") : readGroupFile(this.#file);
    if (state === 1 || state === "FROZEN") return "frozen";
    return state === 0 || state === "FREEZING" ? "freezing" : undefined;
  }
}

/**
 * The directories of a process's control groups, by controller for version 1 and under `""` for version 2.
 * @param cgroups the process's `/proc/PID/cgroup`.
 * @param mountinfo the service's `/proc/self/mountinfo`.
 */
export function groupDirectories(cgroups: string, mountinfo: string): Map<string, string> {
  const mounts = mountinfo.split("\n").flatMap((line) => {
    const [left = "", right = ""] = line.split(" - ");
    const [, , , root = "", target = ""] = left.split(" ");
    const [type = "", , options = ""] = right.split(" ");
    return type === "cgroup" || type === "cgroup2"
      ? [{ root, target, type, options: options.split(",") }]
      : [];
  });
  const found = new Map<string, string>();
  for (const line of cgroups.split("\n")) {
    const [, names, own] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (names === undefined || own === undefined) continue;
    for (const name of names.split(",")) {
      const mount = mounts.find(({ type, options }) =>
        name === "" ? type === "cgroup2" : type === "cgroup" && options.includes(name),
      );
      if (mount === undefined) continue;
      // In a container the mount shows only part of the hierarchy.
      const below =
        mount.root === "/" ? own : own.startsWith(mount.root) ? own.slice(mount.root.length) : "/";
      found.set(name, path.join(mount.target, below));
    }
  }
  return found;
}

/**
 * What control groups measure.
 * @param directories by controller for version 1, and under `""` for version 2.
 */
export function groupUsage(directories: ReadonlyMap<string, string>): Partial<EngineUsage> {
  const read = (controller: string, v1: string, v2: string, keys: { v1?: string[]; v2?: string[] } = {}) => {
    const own = directories.get(controller);
    const unified = directories.get("");
    if (own !== undefined) return readCount(path.join(own, v1), ...(keys.v1 ?? []));
    return unified === undefined ? undefined : readCount(path.join(unified, v2), ...(keys.v2 ?? []));
  };
  const memory = read("memory", "memory.usage_in_bytes", "memory.current");
  // The kernel reclaims page cache before it kills a process for memory.
  const cache =
    read("memory", "memory.stat", "memory.stat", {
      v1: ["total_inactive_file", "total_active_file"],
      v2: ["inactive_file", "active_file"],
    }) ?? 0;
  const cpu = read("cpuacct", "cpuacct.usage", "cpu.stat", { v2: ["usage_usec"] });
  const pids = read("pids", "pids.current", "pids.current");
  return {
    ...(memory !== undefined && { memoryBytes: Math.max(0, memory - cache) }),
    ...(cpu !== undefined && { cpuNanos: directories.has("cpuacct") ? cpu : cpu * 1000 }),
    ...(pids !== undefined && { pids }),
  };
}

/** Whether a group is at or near its limit of processes. */
export function isFull(directory: string): boolean {
  const [current, max] = ["pids.current", "pids.max"].map((file) => readCount(path.join(directory, file)));
  return current !== undefined && max !== undefined && isNear(current, max);
}

/** Whether a number of processes is at or near its limit: code that forks in a loop is sometimes just below it. */
export function isNear(current: number, max: number): boolean {
  return current >= max - Math.ceil(max / 10);
}

/**
 * The number after a key in a file of `KEY NUMBER` lines, or the file's only number without keys. For several keys, the
 * sum of their numbers, all from one moment. Undefined if none is there.
 */
export function readCount(file: string, ...keys: readonly string[]): number | undefined {
  try {
    const text = withSpareDescriptors(() => readFileSync(file, "latin1"));
    const lines = keys.length === 0 ? "" : `(?:${keys.join("|")}) `;
    const counts = [...text.matchAll(new RegExp(`^${lines}(\\d+)`, "gm"))].map(([, count]) => Number(count));
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count);
  } catch {
    return undefined;
  }
}

/** The trimmed text of a control group's file; undefined if it cannot be read. */
export function readGroupFile(file: string): string | undefined {
  try {
    return withSpareDescriptors(() => readFileSync(file, "latin1")).trim();
  } catch {
    return undefined;
  }
}

/** Writes a control group's file. Returns whether the kernel accepted it; false also if the group is gone. */
export function writeGroupFile(file: string, text: string): boolean {
  try {
    withSpareDescriptors(() => writeFileSync(file, text));
    return true;
  } catch {
    return false;
  }
}
