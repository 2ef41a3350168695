import { readFileSync } from "node:fs";
import path from "node:path";

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
