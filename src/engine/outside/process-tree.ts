import { stat } from "node:fs/promises";
import type { ProcessName } from "../port.ts";
import {
  descriptorsOf,
  type HostProcess,
  holdsAny,
  type IdKind,
  idsOf,
  type ProcessScope,
  readProcesses,
  scanTurns,
} from "./host-process.ts";

/** The descriptors in which one of Berth's shells holds the pipes of its job. */
const PIPE_FDS = ["3", "4"];

/**
 * The tree of a session leader: its session, all descendants of the tree, and all processes that hold the leader's
 * pipes. A member remains a member even when its parent ends and it becomes a child of process 1.
 */
export class ProcessTree {
  readonly #scope: ProcessScope;
  readonly #level: number;
  readonly #name: ProcessName;
  /** Known members, by {@link keyOf}. */
  readonly #known = new Set<string>();
  /**
   * Processes that do not hold the pipes, by {@link keyOf}. They are not searched again: one may have a hundred thousand
   * descriptors, and none that is not a member inherits the pipes later.
   */
  readonly #strangers = new Set<string>();
  #pipes: readonly string[] = [];
  #leaderPid: number | undefined;
  #session: number | undefined;

  /** @param level index of the sandbox's pid namespace in the ids of a process. */
  constructor(scope: ProcessScope, level: number, leader: ProcessName) {
    this.#scope = scope;
    this.#level = level;
    this.#name = leader;
  }

  /** The current members, including the leader. */
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

  /** The leader; undefined if it has ended. */
  async leader(): Promise<HostProcess | undefined> {
    return this.#findLeader(await readProcesses(this.#scope));
  }

  /** The processes of the leader's process group; empty if there are none. */
  async group(): Promise<HostProcess[]> {
    const all = await readProcesses(this.#scope);
    const leader = await this.#findLeader(all);
    const group = leader?.pid ?? (await this.#hostId(all, "NSpgid", (one) => one.group));
    return all.filter((one) => one.group === group);
  }

  async #findLeader(all: readonly HostProcess[]): Promise<HostProcess | undefined> {
    const { pid, startTime } = this.#name;
    // Process 1 is never the leader of a tree.
    if (!(pid > 1)) return undefined;
    const isIt = (one: HostProcess): boolean => idsOf(one.pid, "NSpid")[this.#level] === pid;
    const known = all.find((one) => one.pid === this.#leaderPid && this.#known.has(keyOf(one)));
    if (known !== undefined) return known;
    for (const one of all) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      if ((startTime === "" || one.startTime === startTime) && isIt(one)) {
        this.#leaderPid = one.pid;
        return one;
      }
    }
    return undefined;
  }

  /** The host's id of the session. A session can outlive its leader. */
  async #findSession(
    all: readonly HostProcess[],
    leader: HostProcess | undefined,
  ): Promise<number | undefined> {
    this.#session ??= leader?.pid ?? (await this.#hostId(all, "NSsid", (one) => one.session));
    return this.#session;
  }

  /** The host's id of a group or session whose leader has ended. In the sandbox its id is the leader's pid. */
  async #hostId(
    all: readonly HostProcess[],
    kind: IdKind,
    idOf: (one: HostProcess) => number,
  ): Promise<number | undefined> {
    if (!(this.#name.pid > 1)) return undefined;
    const seen = new Set<number>();
    for (const one of all) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      const id = idOf(one);
      if (seen.has(id)) continue;
      seen.add(id);
      // An id that is the pid of a live process belongs to a later leader.
      const isLed = all.some(({ pid }) => pid === id);
      if (!isLed && idsOf(one.pid, kind)[this.#level] === this.#name.pid) return id;
    }
    return undefined;
  }

  async #holdersIn(processes: readonly HostProcess[]): Promise<HostProcess[]> {
    if (this.#pipes.length === 0 && this.#leaderPid !== undefined)
      this.#pipes = await pipesOf(this.#leaderPid);
    const found: HostProcess[] = [];
    for (const one of this.#pipes.length === 0 ? [] : processes) {
      if (this.#strangers.has(keyOf(one))) continue;
      const turn = scanTurns.enter();
      if (turn) await turn;
      if (await holdsAny(one.pid, this.#pipes)) found.push(one);
      else this.#strangers.add(keyOf(one));
    }
    return found;
  }
}

function addDescendants(
  members: Set<HostProcess>,
  children: ReadonlyMap<number, readonly HostProcess[]>,
): void {
  // Iterating over a set includes elements added meanwhile.
  for (const { pid } of members) for (const child of children.get(pid) ?? []) members.add(child);
}

/** The pipes of a session leader. They identify other members of its tree. */
async function pipesOf(pid: number): Promise<string[]> {
  const found: string[] = [];
  for (const fd of PIPE_FDS) {
    const info = await stat(`/proc/${pid}/fd/${fd}`).catch(() => undefined);
    if (info?.isFIFO()) found.push(...descriptorsOf(pid, [fd]));
  }
  return found;
}

/** Identifies a process uniquely, also among ended ones. */
export function keyOf({ pid, startTime }: HostProcess): string {
  return `${pid}:${startTime}`;
}
