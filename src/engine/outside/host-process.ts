import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";

/** A process of a sandbox as the host sees it: all numbers are the host's. */
export interface HostProcess {
  readonly pid: number;
  /** As it names itself, in 15 bytes at most. */
  readonly name: string;
  /** When it began, as the kernel counts: tells it from a later process of the same pid. */
  readonly startTime: string;
  /** The letter of its state, for instance `T` where a signal stopped it. */
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly hasTerminal: boolean;
}

/** The processes of the host that belong to one sandbox, and nobody else's. */
export interface ProcessScope {
  /** The pids of the sandbox's processes, as of now. */
  pids(): Promise<readonly number[]>;
  /** Whether a process belongs to the sandbox. Asked at once before every signal. */
  holds(pid: number): boolean;
}

/** Letters of processes that are gone but for their entry in the table. */
const DEAD = /[ZX]/;
/** How long a scan may hold the event loop at a stretch. */
const SLICE_MS = 2;

/** One process; undefined where it is none or has ended. */
export function readProcess(pid: number): HostProcess | undefined {
  const text = readText(`/proc/${pid}/stat`);
  if (text === undefined) return undefined;
  // The name is in parentheses and may hold anything.
  const nameEnd = text.lastIndexOf(")");
  const name = text.slice(text.indexOf("(") + 1, nameEnd);
  const fields = text.slice(nameEnd + 2).split(" ");
  const [state, parent, group, session, terminal] = fields;
  const startTime = fields[19];
  if (state === undefined || startTime === undefined) return undefined;
  // The first thread may have ended before the others.
  if (DEAD.test(state) && !(Number(fields[17]) > 1)) return undefined;
  const numbers = { parent: Number(parent), group: Number(group), session: Number(session) };
  return { pid, name, startTime, state, ...numbers, hasTerminal: terminal !== "0" };
}

/** Every process of a scope that has not ended. Lets other work run in between. */
export async function readProcesses(scope: ProcessScope): Promise<HostProcess[]> {
  const slices = new Slices();
  const found: HostProcess[] = [];
  for (const pid of await scope.pids()) {
    const read = readProcess(pid);
    if (read !== undefined) found.push(read);
    if (slices.over) await slices.rest();
  }
  return found;
}

/** Whether a process has begun to exit, although it may still wait for others. */
export function isExiting(pid: number): boolean {
  // The kernel takes a process's memory first.
  return /^0 /.test(readText(`/proc/${pid}/statm`) ?? "0 ");
}

/** Which of a process's numbers, as the kernel names their lines. */
export type InnerNumber = "NSpid" | "NSpgid" | "NSsid";

/** A number of a process in each pid namespace that it is in, the host's first. */
export function numbersOf(pid: number, which: InnerNumber): number[] {
  const line = new RegExp(`^${which}:(.*)$`, "m").exec(readText(`/proc/${pid}/status`) ?? "")?.[1];
  return line === undefined ? [] : line.trim().split(/\s+/).map(Number);
}

/** The pid namespace that a process is in; undefined where that may not be seen. */
export function pidNamespaceOf(pid: number | "self"): string | undefined {
  return readLink(`/proc/${pid}/ns/pid`);
}

/** What the given descriptors of a process lead to. A pipe has the same text for all who hold it. */
export function descriptorsOf(pid: number, fds: readonly string[] | "all"): string[] {
  const names = fds === "all" ? listed(`/proc/${pid}/fd`) : fds;
  return names.flatMap((fd) => {
    const target = readLink(`/proc/${pid}/fd/${fd}`);
    // A named pipe may lose its name at any time.
    return target === undefined ? [] : [target.replace(/ \(deleted\)$/, "")];
  });
}

/** Sends a signal to a process that was read, where that still is the same one and the sandbox's. Returns whether it was sent. */
export function signalProcess(scope: ProcessScope, { pid, startTime }: HostProcess, signal: number): boolean {
  // 0 and below mean groups, 1 the host's own init.
  if (!Number.isInteger(pid) || pid <= 1 || pid === process.pid) return false;
  if (readProcess(pid)?.startTime !== startTime || !scope.holds(pid)) return false;
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** Divides long work on the event loop into short stretches. */
export class Slices {
  #since = performance.now();

  get over(): boolean {
    return performance.now() - this.#since >= SLICE_MS;
  }

  async rest(): Promise<void> {
    await nextTurn();
    this.#since = performance.now();
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return undefined;
  }
}

function readLink(file: string): string | undefined {
  try {
    return readlinkSync(file);
  } catch {
    return undefined;
  }
}

function listed(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

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
