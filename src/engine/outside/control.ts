import { uptime } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../../base/errors.ts";
import { Turns } from "../../base/turns.ts";
import type { DoomedTree, Obstacle, OpenFile, OutsideControl, ProcessName, Seclusion } from "../port.ts";
import type { Freezer, Stillness } from "./cgroup.ts";
import {
  childrenOf,
  type HostProcess,
  idsOf,
  isExiting,
  type ProcessScope,
  readProcess,
  readProcesses,
  scanTurns,
  signalProcess,
} from "./host-process.ts";
import { MAX_DESCENDANTS, openFileOf } from "./open-file.ts";
import { keyOf, ProcessTree } from "./process-tree.ts";
import { lookForSeclusion } from "./seclusion.ts";

/** What {@link OutsideView} needs to know about a sandbox. */
interface OutsideParts {
  readonly scope: ProcessScope;
  /** Processes that are entering the sandbox and are not in `scope` yet. */
  readonly entering: ProcessScope;
  /** Whether a process of this name has entered but not yet executed its program. */
  isHalfWayIn(name: string): boolean;
  /** Index of the sandbox's pid namespace in the ids of a process. */
  readonly level: number;
  readonly freezer: Freezer;
  /**
   * Whether to stop a tree process by process before killing it, and to freeze the sandbox only if the tree outruns
   * that. Set if others, who do not know about the freeze, also start processes in the sandbox.
   */
  readonly freezeLast: boolean;
  /** Age of the oldest process start in progress, in milliseconds; 0 if there is none. */
  oldestStartMs(): number;
  oomKills(): number | undefined;
  /** Whether the sandbox has reached its limit of processes. */
  isFull(): Promise<boolean>;
}

const SIGKILL = 9;
const SIGTERM = 15;
const SIGCONT = 18;
const SIGSTOP = 19;
/** How long ending a tree may take in total. */
const KILL_MS = 1_000;
/**
 * The first round kills, the next ones kill what was being started meanwhile and check that nothing is left. They run
 * even if a busy machine exceeds KILL_MS: a round that takes long says nothing about the tree, and failing costs the
 * whole sandbox. A tree that starts processes faster than they can be stopped gets fewer.
 */
const MIN_ROUNDS = { stopped: 10, outrun: 3 };
/** How long a tree may outrun being stopped process by process. */
const OUTRUN_MS = KILL_MS / 4;
/** How long to wait for killed processes: one that writes to a slow disk ends only after the write. */
const DYING_MS = 300;
/** How long to wait until a terminal has stopped with its program. */
const STOPPING_MS = 300;
const LOOK_MS = 2;
/** The kernel's clock tick: the same on every Linux that Node runs on. */
const TICK_MS = 10;

/** Controls the processes of a sandbox through the host's kernel. */
export class OutsideView implements OutsideControl {
  readonly #parts: OutsideParts;
  /** One freeze at a time: the end of one would thaw the sandbox during the other. */
  readonly #freezing = new Turns(1);

  constructor(parts: OutsideParts) {
    this.#parts = parts;
  }

  async tree(leader: ProcessName): Promise<readonly ProcessName[]> {
    const found: ProcessName[] = [];
    for (const { pid: hostPid, startTime } of await this.#tree(leader).members()) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      const pid = this.#innerPid(hostPid);
      if (pid !== undefined) found.push({ pid, startTime });
    }
    return found;
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
    const isSent = await this.#send(group, signal);
    if (signal === SIGSTOP) await this.#untilTerminalStops(group);
    if (signal === SIGCONT) await this.#continueTerminal(group);
    return isSent;
  }

  async terminateTree(leader: ProcessName): Promise<DoomedTree> {
    const tree = this.#tree(leader);
    const members = await tree.members();
    await this.#send(members, SIGTERM);
    // A stopped process receives SIGTERM when it continues.
    await this.#send(members.filter(isStopped), SIGCONT);
    await this.#continueTerminal(members);
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
    const all = await readProcesses(this.#parts.scope);
    const init = await this.#initOf(all);
    if (init === undefined || isExiting(init.pid)) return true;
    // Process 1 ends with the main process, its child, as soon as it is scheduled.
    return all.every(({ pid, parent }) => parent !== init.pid || isExiting(pid));
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

  /** Kills every process of the sandbox, including process 1. */
  async killAll(): Promise<void> {
    await this.#parts.freezer.frozen(async () => this.#send(await readProcesses(this.#parts.scope), SIGKILL));
  }

  async openFile(leader: ProcessName, descriptor: number): Promise<OpenFile | undefined> {
    const found = await this.#tree(leader).leader();
    if (found === undefined) return undefined;
    for (const pid of [found.pid, ...childrenOf(found.pid).slice(0, MAX_DESCENDANTS)]) {
      const file = await openFileOf(this.#parts.scope, pid, descriptor);
      if (file !== undefined) return file;
    }
    return undefined;
  }

  /**
   * Stopped processes that were started from outside, in the last `withinMs` or since the oldest start in progress, or
   * that are still halfway in. Their parents are not in the sandbox. Programs at a terminal are left out: their user
   * may have stopped them.
   */
  async #stoppedStarts(withinMs: number): Promise<HostProcess[]> {
    const { isHalfWayIn, oldestStartMs } = this.#parts;
    // Start times of processes count from boot.
    const since = uptime() * 1000 - Math.max(withinMs, oldestStartMs());
    const isStart = ({ name, startTime, hasTerminal }: HostProcess): boolean =>
      isHalfWayIn(name) || (!hasTerminal && Number(startTime) * TICK_MS >= since);
    const all = await this.#processes();
    return [...all.values()].filter(
      (one) => isStopped(one) && !all.has(one.parent) && isStart(one) && (this.#innerPid(one.pid) ?? 0) > 1,
    );
  }

  /** All processes of the sandbox, including those entering it, by pid. */
  async #processes(): Promise<Map<number, HostProcess>> {
    const { scope, entering } = this.#parts;
    const found = new Map<number, HostProcess>();
    for (const one of [scope, entering])
      for (const process of await readProcesses(one)) found.set(process.pid, process);
    return found;
  }

  async #initOf(processes: readonly HostProcess[]): Promise<HostProcess | undefined> {
    for (const one of processes) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      if (this.#innerPid(one.pid) === 1) return one;
    }
    return undefined;
  }

  /** A process's pid as the sandbox sees it. */
  #innerPid(pid: number): number | undefined {
    return idsOf(pid, "NSpid")[this.#parts.level];
  }

  /**
   * The program in the sandbox that provides the terminal of one of these processes, if there is one: bubblewrap's
   * `script`. It stops itself when SIGSTOP has stopped the leader of the terminal's session, and waits for SIGCONT.
   */
  #terminalOf(processes: readonly HostProcess[]): HostProcess | undefined {
    const leader = processes.find(({ pid, session, hasTerminal }) => hasTerminal && session === pid);
    const parent = leader && readProcess(leader.parent);
    return parent && this.#parts.scope.holds(parent.pid) ? parent : undefined;
  }

  /** Waits a short time: one that stops only after its leader was continued would stay stopped. */
  async #untilTerminalStops(processes: readonly HostProcess[]): Promise<void> {
    const deadline = performance.now() + STOPPING_MS;
    let terminal = this.#terminalOf(processes);
    while (terminal && !isStopped(terminal) && performance.now() < deadline) {
      await sleep(LOOK_MS);
      terminal = readProcess(terminal.pid);
    }
  }

  async #continueTerminal(processes: readonly HostProcess[]): Promise<void> {
    const terminal = this.#terminalOf(processes);
    if (terminal !== undefined && isStopped(terminal)) await this.#send([terminal], SIGCONT);
  }

  #tree(leader: ProcessName): ProcessTree {
    const { scope, level } = this.#parts;
    return new ProcessTree(scope, level, leader);
  }

  async #end(tree: ProcessTree): Promise<void> {
    try {
      await this.#freezing.run(() => this.#kill(tree));
    } finally {
      // A start that the tree has stopped must not block other starts.
      await this.continueStarts(0);
    }
  }

  async #kill(tree: ProcessTree): Promise<void> {
    const deadline = performance.now() + KILL_MS;
    const struck = new Set<string>();
    const { freezer, freezeLast } = this.#parts;
    let minRounds = MIN_ROUNDS.stopped;
    for (let round = 0; round < minRounds || performance.now() < deadline; round++) {
      // The second round only checks whether anything was started during the first.
      const freezes = !freezeLast || round >= 2;
      const { doomed, stillness, complete } = freezes
        ? await freezer.frozen((stillness) => this.#strike(tree, stillness))
        : await this.#strike(tree, freezer.paused ? "paused" : "running");
      // A killed process that still exists runs no more code: it only waits to be scheduled so that it can end.
      const isOver = doomed.every((one) => struck.has(keyOf(one)));
      if (isOver || stillness === "paused") return;
      for (const one of doomed) struck.add(keyOf(one));
      await this.#gone(doomed);
      // The tree could start nothing while it was read and killed.
      if (complete && stillness === "frozen") return;
      minRounds = complete ? MIN_ROUNDS.stopped : MIN_ROUNDS.outrun;
    }
    throw new BerthError("ENGINE_UNAVAILABLE", "Some processes of the tree did not end.");
  }

  /** Kills the current members of a tree. If they are running, it stops them first, so that they start nothing. */
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
    // A signaled process runs no more code, even if it gets no CPU time to stop.
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

  /** Returns whether any process got the signal. Yields to the event loop: there may be thousands of them. */
  async #send(processes: readonly HostProcess[], signal: number): Promise<boolean> {
    const { scope, entering } = this.#parts;
    let isSent = false;
    for (const one of processes) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      if (signalProcess(scope, one, signal) || signalProcess(entering, one, signal)) isSent = true;
    }
    return isSent;
  }

  /** Waits a short time until killed processes are gone. */
  async #gone(killed: readonly HostProcess[]): Promise<void> {
    const deadline = performance.now() + DYING_MS;
    for (const { pid, startTime } of killed) {
      const turn = scanTurns.enter();
      if (turn) await turn;
      while (readProcess(pid)?.startTime === startTime && performance.now() < deadline) await sleep(LOOK_MS);
    }
  }
}

/** Stopped by a signal or by a tracer. */
function isStopped({ state }: HostProcess): boolean {
  return /[Tt]/.test(state);
}
