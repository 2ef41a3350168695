import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Mutex } from "async-mutex";
import { BerthError } from "../../base/errors.ts";
import type { DoomedTree, Obstacle, OutsideControl, ProcessName, Seclusion } from "../port.ts";
import type { Freezer, Stillness } from "./cgroup.ts";
import {
  type HostProcess,
  isExiting,
  numbersOf,
  type ProcessScope,
  readProcess,
  readProcesses,
  Slices,
  signalProcess,
} from "./host-process.ts";
import { keyOf, ProcessTree } from "./process-tree.ts";
import { lookForSeclusion } from "./seclusion.ts";

/** What an {@link OutsideView} is made of. */
export interface OutsideParts {
  /** As in {@link OutsideControl}. */
  readonly undumpable: string | undefined;
  readonly scope: ProcessScope;
  /** Those that enter it and are not in `scope` yet. */
  readonly entering: ProcessScope;
  /** Whether a process that has entered is known by its name to be half-way in: it has not become a program of the sandbox yet. */
  isHalfWayIn(name: string): boolean;
  /** Which of a process's numbers is the one that the sandbox sees. */
  readonly level: number;
  readonly freezer: Freezer;
  /**
   * Whether a tree is frozen to be killed only where it outruns being stopped process by process:
   * where others, who know nothing of it, start processes in the sandbox too.
   */
  readonly freezeLast: boolean;
  /** For how long the oldest start of a process there has been under way, in milliseconds. */
  oldestStartMs(): number;
  oomKills(): number | undefined;
  /** Whether the sandbox has as many processes as it may have. */
  isFull(): Promise<boolean>;
}

const SIGKILL = 9;
const SIGTERM = 15;
const SIGCONT = 18;
const SIGSTOP = 19;
/** How long a tree may take to be ended in all. */
const KILL_MS = 1_000;
/** How long a tree may outrun being stopped process by process. */
const OUTRUN_MS = KILL_MS / 4;
/** How long killed processes are waited for: one that writes to a slow disk ends when it has. */
const DYING_MS = 300;
const LOOK_MS = 2;
/** In which the kernel counts start times: the same on every Linux that Node runs on. */
const TICK_MS = 10;

/** The processes of a sandbox, by what the host's kernel shows and does. */
export class OutsideView implements OutsideControl {
  readonly #parts: OutsideParts;
  /** Two who freeze must not let go of each other's. */
  readonly #freezing = new Mutex();

  constructor(parts: OutsideParts) {
    this.#parts = parts;
  }

  get undumpable(): string | undefined {
    return this.#parts.undumpable;
  }

  async tree(leader: ProcessName): Promise<readonly ProcessName[]> {
    const members = await this.#tree(leader).members();
    return members.flatMap(({ pid: hostPid, startTime }) => {
      const pid = this.#innerPid(hostPid);
      return pid === undefined ? [] : [{ pid, startTime }];
    });
  }

  async stateOf(leader: ProcessName): Promise<"running" | "stopped" | undefined> {
    const found = await this.#tree(leader).leader();
    return found && (isStopped(found) ? "stopped" : "running");
  }

  async isHeldUp(leader: ProcessName): Promise<boolean> {
    return (await this.#tree(leader).members()).some(isStopped);
  }

  async continueTree(leader: ProcessName): Promise<void> {
    await this.#send((await this.#tree(leader).members()).filter(isStopped), SIGCONT);
  }

  async signalGroup(leader: ProcessName, signal: number): Promise<boolean> {
    const group = await this.#tree(leader).group();
    if (signal === 0) return group.length > 0;
    return group.filter((one) => signalProcess(this.#parts.scope, one, signal)).length > 0;
  }

  async terminateTree(leader: ProcessName): Promise<DoomedTree> {
    const tree = this.#tree(leader);
    const members = await tree.members();
    await this.#send(members, SIGTERM);
    // What is stopped takes it when it goes on.
    await this.#send(members.filter(isStopped), SIGCONT);
    return { kill: () => this.#end(tree) };
  }

  killTree(leader: ProcessName): Promise<void> {
    return this.#end(this.#tree(leader));
  }

  seclusion(shell: ProcessName, before?: Seclusion): Promise<Seclusion | undefined> {
    return lookForSeclusion(this.#parts.scope, this.#parts.level, shell, before);
  }

  oomKills(): number | undefined {
    return this.#parts.oomKills();
  }

  async isEnding(): Promise<boolean> {
    const main = (await readProcesses(this.#parts.scope)).find(({ pid }) => this.#innerPid(pid) === 1);
    return main === undefined || isExiting(main.pid);
  }

  async obstacle(withinMs: number): Promise<Obstacle | undefined> {
    if (await this.#parts.isFull()) return "no-processes";
    return (await this.#stoppedStarts(withinMs)).length > 0 ? "stopped" : undefined;
  }

  async continueStarts(withinMs: number): Promise<void> {
    await this.#send(await this.#stoppedStarts(withinMs), SIGCONT);
  }

  async endStoppedStarts(withinMs: number): Promise<void> {
    const all = await this.#processes();
    const parents = new Set([...all.values()].map(({ parent }) => parent));
    const stopped = (await this.#stoppedStarts(withinMs)).filter(({ pid }) => !parents.has(pid));
    await this.#send(stopped, SIGKILL);
  }

  /** Ends every process of the sandbox, process 1 included. */
  async killAll(): Promise<void> {
    await this.#parts.freezer.frozen(async () => this.#send(await readProcesses(this.#parts.scope), SIGKILL));
  }

  /**
   * What a signal has stopped of what was started in the sandbox from outside, in the last while or since the oldest
   * start that is under way began, or is half-way in. Parents of those are none of the sandbox's own. A program at a
   * terminal is its user's to stop.
   */
  async #stoppedStarts(withinMs: number): Promise<HostProcess[]> {
    const { isHalfWayIn, oldestStartMs } = this.#parts;
    const since = uptimeMs() - Math.max(withinMs, oldestStartMs());
    const isStart = ({ name, startTime, hasTerminal }: HostProcess): boolean =>
      isHalfWayIn(name) || (!hasTerminal && Number(startTime) * TICK_MS >= since);
    const all = await this.#processes();
    return [...all.values()].filter(
      (one) => isStopped(one) && !all.has(one.parent) && isStart(one) && (this.#innerPid(one.pid) ?? 0) > 1,
    );
  }

  /** All processes of the sandbox, those included that just enter it, by pid. */
  async #processes(): Promise<Map<number, HostProcess>> {
    const { scope, entering } = this.#parts;
    const found = new Map<number, HostProcess>();
    for (const one of [scope, entering])
      for (const process of await readProcesses(one)) found.set(process.pid, process);
    return found;
  }

  /** A process's pid as the sandbox sees it. */
  #innerPid(pid: number): number | undefined {
    return numbersOf(pid, "NSpid")[this.#parts.level];
  }

  #tree(leader: ProcessName): ProcessTree {
    const { scope, level } = this.#parts;
    return new ProcessTree(scope, level, leader);
  }

  async #end(tree: ProcessTree): Promise<void> {
    try {
      await this.#freezing.runExclusive(() => this.#kill(tree));
    } finally {
      // What the tree had stopped of others' is not to keep them waiting.
      await this.continueStarts(0);
    }
  }

  async #kill(tree: ProcessTree): Promise<void> {
    const deadline = performance.now() + KILL_MS;
    const struck = new Set<string>();
    const { freezer, freezeLast } = this.#parts;
    for (let round = 0; performance.now() < deadline; round++) {
      // The second only looks whether something was started while the first went on.
      const freezes = !freezeLast || round >= 2;
      const { doomed, stillness, complete } = freezes
        ? await freezer.frozen((stillness) => this.#strike(tree, stillness))
        : await this.#strike(tree, freezer.paused ? "paused" : "running");
      // What was killed and is still there does nothing more: it only waits for its turn to end.
      const isOver = doomed.every((one) => struck.has(keyOf(one)));
      if (isOver || stillness === "paused") return;
      for (const one of doomed) struck.add(keyOf(one));
      await this.#gone(doomed);
      // Nothing could be started while all of it was seen and killed.
      if (complete && stillness === "frozen") return;
    }
    throw new BerthError("ENGINE_UNAVAILABLE", "Some processes of the tree did not end.");
  }

  /** Kills what there is of a tree. Where it runs on meanwhile, it is stopped first, so that it starts nothing. */
  async #strike(
    tree: ProcessTree,
    stillness: Stillness,
  ): Promise<{
    readonly doomed: readonly HostProcess[];
    readonly stillness: Stillness;
    readonly complete: boolean;
  }> {
    let complete = stillness !== "running";
    let doomed = await tree.members();
    const deadline = performance.now() + OUTRUN_MS;
    // Who has the signal does nothing more, even where it gets no CPU time to stop.
    const halted = new Set<string>();
    while (stillness === "running" && performance.now() < deadline) {
      const running = doomed.filter((one) => !isStopped(one) && !halted.has(keyOf(one)));
      complete = running.length === 0;
      if (complete) break;
      await this.#send(running, SIGSTOP);
      for (const one of running) halted.add(keyOf(one));
      doomed = await tree.members();
    }
    await this.#send(doomed, SIGKILL);
    return { doomed, stillness, complete };
  }

  async #send(processes: readonly HostProcess[], signal: number): Promise<void> {
    const { scope, entering } = this.#parts;
    const slices = new Slices();
    for (const one of processes) {
      signalProcess(scope, one, signal) || signalProcess(entering, one, signal);
      if (slices.over) await slices.rest();
    }
  }

  /** Waits until killed processes are gone, though not for long. */
  async #gone(killed: readonly HostProcess[]): Promise<void> {
    const deadline = performance.now() + DYING_MS;
    const slices = new Slices();
    for (const { pid, startTime } of killed) {
      while (readProcess(pid)?.startTime === startTime && performance.now() < deadline) await sleep(LOOK_MS);
      if (slices.over) await slices.rest();
    }
  }
}

/** Since the machine's start, as the start times of processes are counted. */
function uptimeMs(): number {
  return Number(readFileSync("/proc/uptime", "latin1").split(" ")[0]) * 1000;
}

/** By a signal, or by a tracer. */
function isStopped({ state }: HostProcess): boolean {
  return /[Tt]/.test(state);
}
