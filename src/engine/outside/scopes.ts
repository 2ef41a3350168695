import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { type ProcessScope, pidNamespaceOf, Slices } from "./host-process.ts";

/**
 * The processes of a control group that are not in the service's own pid
 * namespace: a group may hold a program of the host's that attends to the sandbox.
 * @param directory of the group, in any hierarchy.
 * @param id a part of the group's path that no other group on the machine has.
 */
export function groupScope(directory: string, id: string): ProcessScope {
  const own = pidNamespaceOf("self");
  const holds = (pid: number): boolean => {
    const namespace = pidNamespaceOf(pid);
    return namespace !== undefined && namespace !== own && groupsOf(pid).includes(id);
  };
  const pids = async (): Promise<number[]> => {
    // A group goes with its sandbox.
    const text = await readFile(`${directory}/cgroup.procs`, "latin1").catch(() => "");
    return text.split("\n").filter(Boolean).map(Number);
  };
  return { pids, holds };
}

/** The processes of the pid namespace that a process has made, for a sandbox without a control group. */
export function namespaceScope(initPid: number): ProcessScope {
  const own = pidNamespaceOf("self");
  const namespace = pidNamespaceOf(initPid);
  const holds = (pid: number): boolean =>
    namespace !== undefined && namespace !== own && pidNamespaceOf(pid) === namespace;
  const pids = async (): Promise<number[]> => {
    const slices = new Slices();
    const found: number[] = [];
    for (const name of await readdir("/proc")) {
      if (/^\d+$/.test(name) && holds(Number(name))) found.push(Number(name));
      if (slices.over) await slices.rest();
    }
    return found;
  };
  return { pids, holds };
}

/** The paths of a process's control groups; empty where it has ended. */
export function groupsOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, "latin1");
  } catch {
    return "";
  }
}
