import { type Dir, opendirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { withSpareDescriptors } from "../../base/spare-descriptors.ts";
import { TurnShare } from "../../base/turn-share.ts";

/** A process of a sandbox as the host sees it. All ids are the host's. */
export interface HostProcess {
  readonly pid: number;
  /** The kernel's name for it (comm), at most 15 bytes. The process can change it. */
  readonly name: string;
  /** When it started, in clock ticks. Distinguishes it from a later process with the same pid. */
  readonly startTime: string;
  /** The letter of its state, for instance `T` for stopped by a signal. */
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly hasTerminal: boolean;
}

/** The host processes of one sandbox, and no others. */
export interface ProcessScope {
  pids(): Promise<readonly number[]>;
  /** Whether a process belongs to the sandbox. Checked immediately before every signal. */
  holds(pid: number): boolean;
}

/** States of processes that have ended but are still in the process table. */
const DEAD = /[ZX]/;
/** Index of the start time in the fields of {@link statOf}. */
const START_TIME = 19;
/** Index of the kernel's flags in them, and the flag of an exiting process (PF_EXITING in linux/sched.h). */
const FLAGS = 6;
const PF_EXITING = 0x4;
/** SIGKILL in the mask of a thread's pending signals. The kernel sets it as soon as the signal is sent. */
const SIGKILL_BIT = 1 << 8;

/**
 * Limits how much the scans of all sandboxes together block the event loop: each process, thread or descriptor that is
 * looked at enters.
 */
export const scanTurns = new TurnShare();

/** Reads a process; undefined if there is none or it has ended. */
export function readProcess(pid: number): HostProcess | undefined {
  const { name, fields } = readStat(pid) ?? {};
  if (name === undefined || fields === undefined) return undefined;
  const [state, parent, group, session, terminal] = fields;
  const startTime = fields[START_TIME];
  if (state === undefined || startTime === undefined) return undefined;
  // The first thread may end before the others.
  if (DEAD.test(state) && !(Number(fields[17]) > 1)) return undefined;
  const numbers = { parent: Number(parent), group: Number(group), session: Number(session) };
  return { pid, name, startTime, state, ...numbers, hasTerminal: terminal !== "0" };
}

/** The fields of `/proc/PID/stat` from the state on, also for a zombie; undefined if there is no such process. */
export function statOf(pid: number): readonly string[] | undefined {
  return readStat(pid)?.fields;
}

/**
 * When a process started, in clock ticks; also for a zombie. Distinguishes it from a later process with the same pid.
 */
export function startTimeOf(pid: number): string | undefined {
  return statOf(pid)?.[START_TIME];
}

function readStat(pid: number): { readonly name: string; readonly fields: readonly string[] } | undefined {
  const text = readText(`/proc/${pid}/stat`);
  if (text === undefined) return undefined;
  // The name is in parentheses and may contain any characters.
  const nameEnd = text.lastIndexOf(")");
  return { name: text.slice(text.indexOf("(") + 1, nameEnd), fields: text.slice(nameEnd + 2).split(" ") };
}

/** Whether there is a process with this pid. */
export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The children of one of a process's threads, by default of the first. */
export function childrenOf(pid: number, thread = pid): number[] {
  return (readText(`/proc/${pid}/task/${thread}/children`) ?? "").split(" ").filter(Boolean).map(Number);
}

/** The threads of a process; empty if it has ended. */
export function threadsOf(pid: number): number[] {
  return listed(`/proc/${pid}/task`).map(Number);
}

/** Reads every process of a scope that has not ended. Yields to the event loop. */
export async function readProcesses(scope: ProcessScope): Promise<HostProcess[]> {
  const found: HostProcess[] = [];
  for (const pid of await scope.pids()) {
    const turn = scanTurns.enter();
    if (turn) await turn;
    const read = readProcess(pid);
    if (read !== undefined) found.push(read);
  }
  return found;
}

/** Whether a process has ended, is exiting (though it may still wait for others), or has been killed. */
export function isExiting(pid: number): boolean {
  const status = readText(`/proc/${pid}/status`);
  // A killed process is not exiting before it runs. It then takes the signal from its own list, not from the shared one.
  for (const [, pending = ""] of status?.matchAll(/^(?:Sig|Shd)Pnd:\s*(\S+)$/gm) ?? [])
    if ((Number.parseInt(pending.slice(-4), 16) & SIGKILL_BIT) !== 0) return true;
  const flags = statOf(pid)?.[FLAGS];
  return status === undefined || flags === undefined || (Number(flags) & PF_EXITING) !== 0;
}

/** A process's pid, process group or session, as `/proc/PID/status` names their lines. */
export type IdKind = "NSpid" | "NSpgid" | "NSsid";

/** An id of a process in each of its pid namespaces, the host's first. */
export function idsOf(pid: number, which: IdKind): number[] {
  const line = new RegExp(`^${which}:(.*)$`, "m").exec(readText(`/proc/${pid}/status`) ?? "")?.[1];
  return line === undefined ? [] : line.trim().split(/\s+/).map(Number);
}

/** The pid namespace of a process; undefined if it is not visible. */
function pidNamespaceOf(pid: number | "self"): string | undefined {
  return readLink(`/proc/${pid}/ns/pid`);
}

/** The targets of some of a process's descriptors. A pipe has the same text in all processes that hold it. */
export function descriptorsOf(pid: number, fds: readonly string[]): string[] {
  return fds.flatMap((fd) => targetOf(pid, fd) ?? []);
}

/**
 * Whether a process has any of these targets open. Yields to the event loop: a process may have thousands of
 * descriptors, and the kernel takes long to name a file in a deep directory.
 */
export async function holdsAny(pid: number, targets: readonly string[]): Promise<boolean> {
  let fds: Dir | undefined;
  try {
    // Reads some names at a time: also the list of thousands of descriptors takes long.
    fds = withSpareDescriptors(() => opendirSync(`/proc/${pid}/fd`));
    for (let fd = fds.readSync(); fd !== null; fd = fds.readSync()) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      if (targets.includes(targetOf(pid, fd.name) ?? "")) return true;
    }
  } catch {
    // It has ended.
  } finally {
    fds?.closeSync();
  }
  return false;
}

function targetOf(pid: number, fd: string): string | undefined {
  // The name of a named pipe may be removed at any time.
  return readLink(`/proc/${pid}/fd/${fd}`)?.replace(/ \(deleted\)$/, "");
}

/**
 * Sends a signal to a process if it is still the one that was read and still belongs to the sandbox. Returns whether it
 * was sent.
 */
export function signalProcess(
  scope: ProcessScope,
  { pid, startTime }: Pick<HostProcess, "pid" | "startTime">,
  signal: number,
): boolean {
  // 0 and negative pids mean groups; 1 is the host's init.
  if (!Number.isInteger(pid) || pid <= 1 || pid === process.pid) return false;
  if (readProcess(pid)?.startTime !== startTime || !scope.holds(pid)) return false;
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** A file of `/proc`; undefined if the process has ended or hides it. */
export function readText(file: string): string | undefined {
  try {
    return withSpareDescriptors(() => readFileSync(file, "latin1"));
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
    return withSpareDescriptors(() => readdirSync(directory));
  } catch {
    return [];
  }
}

/**
 * The processes of a control group, except those in the service's own pid namespace: a group may contain a host program
 * that serves the sandbox.
 * @param directory of the group, in any hierarchy.
 * @param id a part of the group's path that is unique on the machine.
 */
export function groupScope(directory: string, id: string): ProcessScope {
  const own = pidNamespaceOf("self");
  const holds = (pid: number): boolean => {
    const namespace = pidNamespaceOf(pid);
    return namespace !== undefined && namespace !== own && groupsOf(pid).includes(id);
  };
  const pids = async (): Promise<number[]> => {
    const file = `${directory}/cgroup.procs`;
    // The group is removed with its sandbox.
    const text = await readFile(file, "latin1").catch(() => readText(file) ?? "");
    return text.split("\n").filter(Boolean).map(Number);
  };
  return { pids, holds };
}

/** An empty scope. */
export const NO_SCOPE: ProcessScope = { pids: async () => [], holds: () => false };

/**
 * The processes of a pid namespace, named by its first process. For a sandbox without a control group, or for processes
 * that are entering one and are not in its group yet. Empty once the first process has ended, because its pid and the
 * namespace's number may then be reused.
 */
export function namespaceScope(initPid: number, table = new NamespaceTable()): ProcessScope {
  const own = pidNamespaceOf("self");
  const namespace = pidNamespaceOf(initPid);
  const startTime = readProcess(initPid)?.startTime;
  const exists = (): boolean =>
    namespace !== undefined && namespace !== own && readProcess(initPid)?.startTime === startTime;
  return {
    holds: (pid) => exists() && pidNamespaceOf(pid) === namespace,
    pids: async () => (exists() && namespace !== undefined ? table.pidsIn(namespace) : []),
  };
}

/** Which host processes are in which pid namespace. Callers that wait for the next scan share it. */
export class NamespaceTable {
  #next: Promise<ReadonlyMap<string, readonly number[]>> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  /** The pids at some moment after the call. */
  async pidsIn(namespace: string): Promise<readonly number[]> {
    this.#next ??= this.#scan();
    return (await this.#next).get(namespace) ?? [];
  }

  async #scan(): Promise<Map<string, number[]>> {
    await this.#last;
    this.#next = undefined;
    const scan = scanNamespaces();
    this.#last = scan.catch(() => {});
    return scan;
  }
}

async function scanNamespaces(): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  for (const name of await readdir("/proc").catch(() => withSpareDescriptors(() => readdirSync("/proc")))) {
    const turn = scanTurns.enter();
    if (turn) await turn;
    const namespace = /^\d+$/.test(name) ? pidNamespaceOf(Number(name)) : undefined;
    if (namespace !== undefined) {
      const pids = found.get(namespace) ?? [];
      found.set(namespace, pids);
      pids.push(Number(name));
    }
  }
  return found;
}

/** `/proc/PID/cgroup` of a process; empty if it has ended. */
export function groupsOf(pid: number): string {
  return readText(`/proc/${pid}/cgroup`) ?? "";
}
