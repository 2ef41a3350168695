import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Whether the processes of a sandbox stand still while they are looked at. */
export type Stillness =
  /** For the moment. */
  | "frozen"
  /** The sandbox is paused. */
  | "paused"
  /** They run on. */
  | "running";

/** Makes the processes of a sandbox stand still for a moment. */
export interface Freezer {
  /** Whether the sandbox is paused. */
  readonly paused: boolean;
  /** Runs `act` while they stand still, as far as that can be had soon. */
  frozen<T>(act: (stillness: Stillness) => Promise<T>): Promise<T>;
}

/** For a sandbox whose processes cannot be frozen. */
export const NO_FREEZER: Freezer = { paused: false, frozen: (act) => act("running") };

const LOOK_MS = 2;
/** What is in the kernel for longer (a slow disk) is not waited for. */
const FREEZE_MS = 250;

/** Freezes a control group: of version 1, in the freezer's hierarchy, or of version 2. */
export function groupFreezer(directory: string): Freezer {
  const isV2 = readText(path.join(directory, "cgroup.freeze")) !== undefined;
  const file = path.join(directory, isV2 ? "cgroup.freeze" : "freezer.state");
  const [freeze, thaw] = isV2 ? ["1", "0"] : ["FROZEN", "THAWED"];
  const asked = (): boolean => /^(1|FROZEN|FREEZING)$/.test(readText(file) ?? "");
  const stands = (): boolean =>
    isV2
      ? /^frozen 1$/m.test(readText(path.join(directory, "cgroup.events")) ?? "")
      : readText(file) === "FROZEN";
  return {
    get paused() {
      return asked();
    },
    async frozen(act) {
      if (asked()) return act("paused");
      const deadline = performance.now() + FREEZE_MS;
      try {
        // Asked for again: version 1 may miss a process that is just being made.
        while (tryWrite(file, freeze) && !stands() && performance.now() < deadline) await sleep(LOOK_MS);
        return await act(stands() ? "frozen" : "running");
      } finally {
        tryWrite(file, thaw);
      }
    },
  };
}

/** Whether the kernel took it. A group goes with its sandbox. */
function tryWrite(file: string, text: string): boolean {
  try {
    writeFileSync(file, text);
    return true;
  } catch {
    return false;
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, "latin1").trim();
  } catch {
    return undefined;
  }
}

/**
 * Where control groups are found: by controller for version 1, `""` for version 2.
 * @param cgroups of a process, as `/proc/PID/cgroup` has them.
 * @param mountinfo of the service.
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
      // Inside a container the mount shows a part of the hierarchy only.
      const below =
        mount.root === "/" ? own : own.startsWith(mount.root) ? own.slice(mount.root.length) : "/";
      found.set(name, path.join(mount.target, below));
    }
  }
  return found;
}

/** Whether a group has about as many processes as it may have. */
export function isFull(directory: string): boolean {
  const [current, most] = ["pids.current", "pids.max"].map((file) => readCount(path.join(directory, file)));
  return current !== undefined && most !== undefined && isNear(current, most);
}

/** Whether a number of processes is about the most there may be: code that starts them in a loop is now and then just below. */
export function isNear(current: number, most: number): boolean {
  return current >= most - Math.ceil(most / 10);
}

/** A number of a file of the form `KEY NUMBER` a line, or of its one line where there is no key. Undefined where it is not there. */
export function readCount(file: string, key?: string): number | undefined {
  try {
    const text = readFileSync(file, "latin1");
    const value = key === undefined ? text : new RegExp(`^${key} (\\d+)`, "m").exec(text)?.[1];
    return value === undefined || !/^\d/.test(value) ? undefined : Number.parseInt(value, 10);
  } catch {
    return undefined;
  }
}
