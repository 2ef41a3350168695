import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import { Turns } from "../../base/turns.ts";
import { type Freezer, GroupFreezer, isFull, isNear, NO_FREEZER, type Stillness } from "../outside/cgroup.ts";
import { OutsideView } from "../outside/control.ts";
import {
  childrenOf,
  groupScope,
  idsOf,
  NO_SCOPE,
  namespaceScope,
  startTimeOf,
  statOf,
} from "../outside/host-process.ts";
import type { EngineSandbox, EngineSandboxEnd, EngineUsage, OutsideControl, Resources } from "../port.ts";
import type { ControlGroup } from "./control-group.ts";
import { terminated } from "./errors.ts";
import type { Keeper } from "./keeper.ts";
import type { Started } from "./launcher.ts";
import { usageOfTree } from "./tree-usage.ts";

/** A starting process keeps a CPU busy: several at once would not start sooner, and would delay other sandboxes. */
const STARTS_AT_ONCE = 1;
/**
 * Allowance for entering processes, which count towards the limit of a sandbox without control groups but are not
 * visible in its pid namespace.
 */
const UNSEEN_PROCESSES = 8;
/** If a sandbox ends within this time after a new OOM kill was seen, the OOM killer is taken as the cause. */
const OOM_TO_END_MS = 3_000;
const KILL_RETRY_MS = 1_000;

/** A sandbox whose main process is ready. */
interface SandboxParts {
  readonly description: EngineSandbox;
  readonly keeper: Keeper;
  /** The host's pid of the sandbox's process 1. */
  readonly initPid: number;
  readonly group: ControlGroup;
  readonly env: Readonly<Record<string, string>>;
  readonly resources: Resources;
}

type Phase =
  | { readonly state: "running" | "pausing" | "paused" }
  | { readonly state: "ended"; readonly end: EngineSandboxEnd };

/** A started sandbox, until it is removed. */
export class BubblewrapSandbox {
  readonly initPid: number;
  readonly group: ControlGroup;
  readonly #freezer: GroupFreezer | undefined;
  readonly env: Readonly<Record<string, string>>;
  #resources: Resources;
  readonly #description: EngineSandbox;
  readonly #keeper: Keeper;
  /** Process starts in progress, with their start times, oldest first. */
  readonly #starting = new Map<Promise<unknown>, number>();
  /** Pids of attendants. */
  readonly #attendants = new Set<number>();
  /** Resolves when its main process, and therefore every process, has ended. */
  readonly ended: Promise<EngineSandboxEnd>;
  readonly #watchers = new Set<() => void>();
  /** Number of OOM kills at the last check, and when that number was first seen. */
  #oomKills = { count: 0, seenAtMs: 0 };
  #phase: Phase = { state: "running" };
  #changing: Promise<void> = Promise.resolve();
  #removal: Promise<void> | undefined;
  readonly outside: OutsideControl;
  /** Queue of process starts. */
  readonly starts = new Turns(STARTS_AT_ONCE);

  constructor({ description, keeper, initPid, group, env, resources }: SandboxParts) {
    this.#resources = resources;
    this.initPid = initPid;
    this.group = group;
    const { freezer } = group.outside;
    this.#freezer = freezer === undefined ? undefined : new GroupFreezer(freezer);
    this.env = env;
    this.#description = description;
    this.#keeper = keeper;
    this.outside = this.#openOutside();
    const startTime = startTimeOf(initPid);
    this.ended = keeper.ended.then(async (exitCode) => {
      this.#lookForOomKills();
      const { count, seenAtMs } = this.#oomKills;
      const recent = count > 0 && performance.now() - seenAtMs < OOM_TO_END_MS;
      const end = { exitCode, outOfMemory: exitCode === 137 && recent };
      this.#phase = { state: "ended", end };
      this.#freezer?.thaw();
      await processGone(initPid, startTime);
      for (const watcher of this.#watchers) watcher();
      return end;
    });
  }

  /**
   * Calls a watcher when the sandbox ends. Returns a function that removes the watcher, which a promise could not
   * offer.
   */
  onEnd(watcher: () => void): () => void {
    if (this.running) this.#watchers.add(watcher);
    else watcher();
    return () => this.#watchers.delete(watcher);
  }

  get resources(): Resources {
    return this.#resources;
  }

  get beingRemoved(): boolean {
    return this.#removal !== undefined;
  }

  get running(): boolean {
    return this.#phase.state !== "ended";
  }

  describe(): EngineSandbox {
    const { state } = this.#phase;
    if (this.#phase.state === "ended") return { ...this.#description, state: "ended", end: this.#phase.end };
    return { ...this.#description, state: state === "paused" ? "paused" : "running" };
  }

  /**
   * The file of the outer user namespace, which owns the other namespaces. @throws `SANDBOX_TERMINATED`,
   * `SANDBOX_NOT_RUNNING`.
   */
  enter(): string {
    if (this.#removal !== undefined || this.#phase.state === "ended") throw terminated();
    if (this.#phase.state === "running") return this.#keeper.userNamespace;
    throw new BerthError("SANDBOX_NOT_RUNNING", "The sandbox is paused. Resume it first.");
  }

  /** Delays a pause while a process starts, which would otherwise be frozen halfway in. */
  async starting<T>(start: Promise<T>): Promise<T> {
    this.#starting.set(start, performance.now());
    try {
      return await start;
    } finally {
      this.#starting.delete(start);
    }
  }

  attend({ pid, code }: Started): void {
    this.#attendants.add(pid);
    void code.then(() => this.#attendants.delete(pid));
  }

  /** Its current usage, by its control groups, else by its process tree. */
  async usage(): Promise<EngineUsage> {
    const counted = this.group.usage();
    const { memoryBytes, cpuNanos, pids } = counted;
    if (memoryBytes !== undefined && cpuNanos !== undefined && pids !== undefined) {
      return { memoryBytes, cpuNanos, pids };
    }
    // Everything inside descends from process 1 or from an attendant's child.
    const roots = [this.initPid, ...[...this.#attendants].flatMap((pid) => childrenOf(pid))];
    return { ...(await usageOfTree(roots)), ...counted };
  }

  pause(signal?: AbortSignal): Promise<void> {
    return this.#change(async () => {
      if (this.#phase.state === "paused") return;
      this.#phase = { state: "pausing" };
      try {
        // A start that code in the sandbox has stopped may last as long as its caller waits.
        await untilAborted(Promise.allSettled(this.#starting.keys()), signal);
        if (this.running) await this.#freezer?.pause(signal);
        if (this.running) this.#phase = { state: "paused" };
      } finally {
        if (this.#phase.state === "pausing") this.#phase = { state: "running" };
      }
    });
  }

  resume(): Promise<void> {
    return this.#change(async () => {
      this.#freezer?.thaw();
      this.#phase = { state: "running" };
    });
  }

  #openOutside(): OutsideControl {
    const { group, initPid } = this;
    const { processes, pids } = group.outside;
    const groupScoped = processes !== undefined;
    const scope = groupScoped ? groupScope(processes, `/${this.#description.ref}`) : namespaceScope(initPid);
    return new OutsideView({
      // A service that is not root could not inspect such a process either.
      scope,
      // An entering process is visible, and can be stopped, in the namespace before it has joined the group.
      entering: groupScoped ? namespaceScope(initPid) : NO_SCOPE,
      isHalfWayIn: (name) => name === "nsenter",
      level: idsOf(initPid, "NSpid").length - 1,
      freezer: this.#freezer === undefined ? NO_FREEZER : this.#momentary(this.#freezer),
      freezeLast: false,
      oldestStartMs: () => {
        const [startedAt] = this.#starting.values();
        return startedAt === undefined ? 0 : performance.now() - startedAt;
      },
      oomKills: () => (groupScoped ? this.#lookForOomKills() : undefined),
      isFull: async () =>
        pids === undefined
          ? isNear((await scope.pids()).length, this.#resources.pidsLimit - UNSEEN_PROCESSES)
          : isFull(pids),
    });
  }

  #lookForOomKills(): number {
    const count = this.group.oomKills();
    if (count !== this.#oomKills.count) this.#oomKills = { count, seenAtMs: performance.now() };
    return count;
  }

  /**
   * Keeps momentary freezes and pauses apart. A pause in progress waits for starts, so a freeze does not wait for it.
   */
  #momentary(freezer: Freezer): Freezer {
    return {
      get paused() {
        return freezer.paused;
      },
      thaw: () => freezer.thaw(),
      frozen: async <T>(act: (stillness: Stillness) => Promise<T>): Promise<T> => {
        if (this.#phase.state === "pausing") return act("running");
        const acting = freezer.frozen(act);
        const over = acting.then(
          () => {},
          () => {},
        );
        this.#changing = Promise.all([this.#changing, over]).then(() => {});
        return acting;
      },
    };
  }

  /** Changes its limits. Those that each process sets for itself change only for later processes. */
  setResources(resources: Resources): void {
    this.group.set(resources);
    this.#resources = resources;
  }

  /** Kills the sandbox; resolves when its last process and its control group are gone. */
  remove(): Promise<void> {
    this.#removal ??= this.#remove().catch((error: unknown) => {
      this.#removal = undefined;
      throw error;
    });
    return this.#removal;
  }

  async #remove(): Promise<void> {
    const kill = (): void => {
      this.#keeper.kill();
      // In a control group of version 1 a frozen process does not die.
      this.#freezer?.thaw();
    };
    // Neither has an effect while the service may open no more files.
    const again = setInterval(kill, KILL_RETRY_MS).unref();
    try {
      kill();
      await this.ended;
    } finally {
      clearInterval(again);
    }
    await this.group.remove();
  }

  /** Runs pauses and resumes one at a time. */
  #change(act: () => Promise<void>): Promise<void> {
    const changing = this.#changing.then(() => {
      if (this.#removal !== undefined || !this.running) throw terminated();
      return act();
    });
    this.#changing = changing.catch(() => {});
    return changing;
  }
}

/** Waits until a process is gone or a zombie. When process 1 ends, its whole pid namespace does. */
async function processGone(pid: number, startTime: string | undefined): Promise<void> {
  if (startTime === undefined) return;
  for (let pauseMs = 1; startTimeOf(pid) === startTime; pauseMs = Math.min(pauseMs * 2, 50)) {
    const state = statOf(pid)?.[0];
    if (state === "Z" || state === "X") return;
    await sleep(pauseMs);
  }
}
