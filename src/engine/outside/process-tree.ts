import { stat } from "node:fs/promises";
import type { ProcessName } from "../port.ts";
import {
  descriptorsOf,
  type HostProcess,
  type InnerNumber,
  numbersOf,
  type ProcessScope,
  readProcesses,
  Slices,
} from "./host-process.ts";

/** The descriptors by which a shell of Berth's keeps the pipes of what it runs. */
const PIPE_FDS = ["3", "4"];

/**
 * The tree of a session leader: its session, whatever descends from one of the
 * tree, and whoever holds the leader's pipes. What once was of it stays so: a
 * process whose parent ends is a child of process 1 from then on.
 */
export class ProcessTree {
  readonly #scope: ProcessScope;
  readonly #level: number;
  readonly #name: ProcessName;
  /** As `pid:start time`. */
  readonly #known = new Set<string>();
  #pipes: readonly string[] = [];
  #leaderPid: number | undefined;
  #session: number | undefined;

  /** @param level which of a process's numbers is the one that the sandbox sees. */
  constructor(scope: ProcessScope, level: number, leader: ProcessName) {
    this.#scope = scope;
    this.#level = level;
    this.#name = leader;
  }

  /** What belongs to the tree now, the leader included. */
  async members(): Promise<HostProcess[]> {
    const all = await readProcesses(this.#scope);
    const leader = await this.#findLeader(all);
    const session = await this.#findSession(all, leader);
    const isRoot = (one: HostProcess): boolean =>
      one === leader || (session !== undefined && one.session === session) || this.#known.has(keyOf(one));
    const children = Map.groupBy(all, ({ parent }) => parent);
    const members = new Set(all.filter(isRoot));
    addDescendants(members, children);
    const others = all.filter((one) => !members.has(one));
    for (const holder of await this.#holdersIn(others)) members.add(holder);
    addDescendants(members, children);
    for (const member of members) this.#known.add(keyOf(member));
    return [...members];
  }

  /** The leader itself, where it has not ended. */
  async leader(): Promise<HostProcess | undefined> {
    return this.#findLeader(await readProcesses(this.#scope));
  }

  /** The processes of the group that the leader began; empty where there are none. */
  async group(): Promise<HostProcess[]> {
    const all = await readProcesses(this.#scope);
    const leader = await this.#findLeader(all);
    const group = leader?.pid ?? (await this.#hostNumber(all, "NSpgid", (one) => one.group));
    return all.filter((one) => one.group === group);
  }

  async #findLeader(all: readonly HostProcess[]): Promise<HostProcess | undefined> {
    const { pid, startTime } = this.#name;
    // Process 1 leads no tree of Berth's.
    if (!(pid > 1)) return undefined;
    const isIt = (one: HostProcess): boolean => numbersOf(one.pid, "NSpid")[this.#level] === pid;
    const known = all.find((one) => one.pid === this.#leaderPid && this.#known.has(keyOf(one)));
    if (known !== undefined) return known;
    const slices = new Slices();
    for (const one of all) {
      if ((startTime === "" || one.startTime === startTime) && isIt(one)) {
        this.#leaderPid = one.pid;
        return one;
      }
      if (slices.over) await slices.rest();
    }
    return undefined;
  }

  /** The host's number of the session, which outlives the leader. */
  async #findSession(
    all: readonly HostProcess[],
    leader: HostProcess | undefined,
  ): Promise<number | undefined> {
    this.#session ??= leader?.pid ?? (await this.#hostNumber(all, "NSsid", (one) => one.session));
    return this.#session;
  }

  /** The host's number of a group or session that has lost the leader, by whose pid the sandbox knows it. */
  async #hostNumber(
    all: readonly HostProcess[],
    which: InnerNumber,
    numberOf: (one: HostProcess) => number,
  ): Promise<number | undefined> {
    if (!(this.#name.pid > 1)) return undefined;
    const slices = new Slices();
    const seen = new Set<number>();
    for (const one of all) {
      const number = numberOf(one);
      if (seen.has(number)) continue;
      seen.add(number);
      // One whose own process of this pid lives is a later one's.
      const isLed = all.some(({ pid }) => pid === number);
      if (!isLed && numbersOf(one.pid, which)[this.#level] === this.#name.pid) return number;
      if (slices.over) await slices.rest();
    }
    return undefined;
  }

  /** Those that hold the leader's pipes. */
  async #holdersIn(processes: readonly HostProcess[]): Promise<HostProcess[]> {
    if (this.#pipes.length === 0 && this.#leaderPid !== undefined)
      this.#pipes = await pipesOf(this.#leaderPid);
    return this.#pipes.length === 0 ? [] : holdersOf(this.#pipes, processes);
  }
}

/** Those of some processes that have one of the pipes open. */
export async function holdersOf(
  pipes: readonly string[],
  processes: readonly HostProcess[],
): Promise<HostProcess[]> {
  const slices = new Slices();
  const found: HostProcess[] = [];
  for (const one of processes) {
    if (descriptorsOf(one.pid, "all").some((target) => pipes.includes(target))) found.push(one);
    if (slices.over) await slices.rest();
  }
  return found;
}

function addDescendants(
  members: Set<HostProcess>,
  children: ReadonlyMap<number, readonly HostProcess[]>,
): void {
  // A set is gone through with what is added meanwhile.
  for (const { pid } of members) for (const child of children.get(pid) ?? []) members.add(child);
}

/** The pipes of a session leader, by which others of its tree are known. */
async function pipesOf(pid: number): Promise<string[]> {
  const found: string[] = [];
  for (const fd of PIPE_FDS) {
    const info = await stat(`/proc/${pid}/fd/${fd}`).catch(() => undefined);
    if (info?.isFIFO()) found.push(...descriptorsOf(pid, [fd]));
  }
  return found;
}

/** What tells a process from all others there were. */
export function keyOf({ pid, startTime }: HostProcess): string {
  return `${pid}:${startTime}`;
}
