import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { type ProcessScope, pidNamespaceOf, readProcess, Slices } from "./host-process.ts";

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

/** For a sandbox whose processes are all in another scope. */
export const NO_SCOPE: ProcessScope = { pids: async () => [], holds: () => false };

/**
 * The processes of the pid namespace that a process has made: of a sandbox without a control group, or those that
 * enter one and are not in its group yet. Empty once that process has ended: others may then get its number, and the namespace's.
 */
export function namespaceScope(initPid: number, table = new NamespaceTable()): ProcessScope {
  const own = pidNamespaceOf("self");
  const namespace = pidNamespaceOf(initPid);
  const started = readProcess(initPid)?.startTime;
  const stands = (): boolean =>
    namespace !== undefined && namespace !== own && readProcess(initPid)?.startTime === started;
  return {
    holds: (pid) => stands() && pidNamespaceOf(pid) === namespace,
    pids: async () => (stands() && namespace !== undefined ? table.pidsIn(namespace) : []),
  };
}

/** Which processes of the host are in which pid namespace. Those that ask while a look is about to begin share it. */
export class NamespaceTable {
  #next: Promise<ReadonlyMap<string, readonly number[]>> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  /** As of a moment after this is called. */
  async pidsIn(namespace: string): Promise<readonly number[]> {
    this.#next ??= this.#look();
    return (await this.#next).get(namespace) ?? [];
  }

  async #look(): Promise<Map<string, number[]>> {
    await this.#last;
    this.#next = undefined;
    const looking = lookForNamespaces();
    this.#last = looking.catch(() => {});
    return looking;
  }
}

async function lookForNamespaces(): Promise<Map<string, number[]>> {
  const slices = new Slices();
  const found = new Map<string, number[]>();
  for (const name of await readdir("/proc")) {
    const namespace = /^\d+$/.test(name) ? pidNamespaceOf(Number(name)) : undefined;
    if (namespace !== undefined) {
      const pids = found.get(namespace) ?? [];
      found.set(namespace, pids);
      pids.push(Number(name));
    }
    if (slices.over) await slices.rest();
  }
  return found;
}

/** The paths of a process's control groups; empty where it has ended. */
export function groupsOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, "latin1");
  } catch {
    return "";
  }
}
