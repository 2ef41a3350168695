import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../../base/errors.ts";
import { type Freezer, groupFreezer, isFull, isNear, NO_FREEZER, type Stillness } from "../outside/cgroup.ts";
import { OutsideView } from "../outside/control.ts";
import { groupScope, idsOf, NO_SCOPE, namespaceScope } from "../outside/host-process.ts";
import type { EngineSandbox, EngineSandboxEnd, OutsideControl, Resources } from "../port.ts";
import type { ControlGroup } from "./control-group.ts";
import { terminated } from "./errors.ts";
import type { Keeper } from "./keeper.ts";
import type { Started } from "./launcher.ts";
import { childrenOf, startOf, stateOf } from "./process-tree.ts";
import { UNDUMPABLE_TARGET } from "./runtime-dir.ts";

/** Counted for the bound of a sandbox without control groups, and not seen in its pid namespace: those that enter it. */
const UNSEEN_PROCESSES = 8;

/** What a {@link BubblewrapSandbox} is made of, once its main process is ready. */
export interface BoxParts {
  readonly sandbox: EngineSandbox;
  /** Holds it on the host. */
  readonly keeper: Keeper;
  /** The host's number of the sandbox's process 1. */
  readonly initPid: number;
  readonly group: ControlGroup;
  readonly env: Readonly<Record<string, string>>;
  readonly resources: Resources;
}

type Phase =
  | { readonly state: "running" | "pausing" | "paused" }
  | { readonly state: "ended"; readonly end: EngineSandboxEnd };

/** A sandbox that was started, until it is removed. */
export class BubblewrapSandbox {
  readonly initPid: number;
  readonly group: ControlGroup;
  readonly env: Readonly<Record<string, string>>;
  #resources: Resources;
  readonly #sandbox: EngineSandbox;
  readonly #keeper: Keeper;
  /** Starts of processes that are under way, each with when it began, oldest first. */
  readonly #starting = new Map<Promise<unknown>, number>();
  /** The host's own processes that wait for one inside. */
  readonly #attendants = new Set<number>();
  /** Resolves when its main process has ended, and with it all others. */
  readonly ended: Promise<EngineSandboxEnd>;
  readonly #watchers = new Set<() => void>();
  #phase: Phase = { state: "running" };
  #changing: Promise<void> = Promise.resolve();
  #removal: Promise<void> | undefined;
  readonly outside: OutsideControl;

  constructor({ sandbox, keeper, initPid, group, env, resources }: BoxParts) {
    this.#resources = resources;
    this.initPid = initPid;
    this.group = group;
    this.env = env;
    this.#sandbox = sandbox;
    this.#keeper = keeper;
    this.outside = this.#seenFromOutside();
    const begun = startOf(initPid);
    this.ended = keeper.ended.then(async (exitCode) => {
      const end = { exitCode, outOfMemory: exitCode === 137 && group.oomKills() > 0 };
      this.#phase = { state: "ended", end };
      this.group.thaw();
      await processGone(initPid, begun);
      for (const watcher of this.#watchers) watcher();
      return end;
    });
  }

  /** Has a watcher told of its end. Returns how it watches no more, which a promise cannot be told. */
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
    if (this.#phase.state === "ended") return { ...this.#sandbox, state: "ended", end: this.#phase.end };
    return { ...this.#sandbox, state: state === "paused" ? "paused" : "running" };
  }

  /** File of the outer user namespace, which owns the others. @throws `SANDBOX_TERMINATED`, `SANDBOX_NOT_RUNNING`. */
  enter(): string {
    if (this.#removal !== undefined || this.#phase.state === "ended") throw terminated();
    if (this.#phase.state === "running") return this.#keeper.userNamespace;
    throw new BerthError("SANDBOX_NOT_RUNNING", "The sandbox is paused. Resume it first.");
  }

  /** Keeps a pause away while a process starts, which would be frozen half-way in. */
  async starting<T>(start: Promise<T>): Promise<T> {
    this.#starting.set(start, performance.now());
    try {
      return await start;
    } finally {
      this.#starting.delete(start);
    }
  }

  /** Keeps the number of an attendant for as long as it runs. */
  attend({ pid, code }: Started): void {
    this.#attendants.add(pid);
    void code.then(() => this.#attendants.delete(pid));
  }

  /** Host's numbers of the processes that everything inside descends from. */
  roots(): number[] {
    return [this.initPid, ...[...this.#attendants].flatMap(childrenOf)];
  }

  pause(signal?: AbortSignal): Promise<void> {
    return this.#change(async () => {
      if (this.#phase.state === "paused") return;
      this.#phase = { state: "pausing" };
      try {
        await Promise.allSettled(this.#starting.keys());
        if (this.running) await this.group.freeze(signal);
        if (this.running) this.#phase = { state: "paused" };
      } finally {
        if (this.#phase.state === "pausing") this.#phase = { state: "running" };
      }
    });
  }

  resume(): Promise<void> {
    return this.#change(async () => {
      this.group.thaw();
      this.#phase = { state: "running" };
    });
  }

  #seenFromOutside(): OutsideControl {
    const { group, initPid } = this;
    const { processes, freezer, pids } = group.outside;
    const groupScoped = processes !== undefined;
    const scope = groupScoped ? groupScope(processes, `/${this.#sandbox.ref}`) : namespaceScope(initPid);
    return new OutsideView({
      // Who is not root could not see into such a process either.
      undumpable: process.getuid?.() === 0 ? UNDUMPABLE_TARGET : undefined,
      scope,
      // What enters it can be seen and stopped there before it has joined the group.
      entering: groupScoped ? namespaceScope(initPid) : NO_SCOPE,
      isHalfWayIn: (name) => name === "nsenter",
      level: idsOf(initPid, "NSpid").length - 1,
      freezer: freezer === undefined ? NO_FREEZER : this.#freezer(groupFreezer(freezer)),
      freezeLast: false,
      oldestStartMs: () => {
        const [began] = this.#starting.values();
        return began === undefined ? 0 : performance.now() - began;
      },
      oomKills: () => (groupScoped ? group.oomKills() : undefined),
      isFull: async () =>
        pids === undefined
          ? isNear((await scope.pids()).length, this.#resources.pidsLimit - UNSEEN_PROCESSES)
          : isFull(pids),
    });
  }

  /** Keeps apart those who freeze it for a moment and those who pause and resume it. A pause that is under way waits for starts, so it is not waited for. */
  #freezer(freezer: Freezer): Freezer {
    return {
      get paused() {
        return freezer.paused;
      },
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

  /** Bounds it anew; what is bounded process by process changes for those that come. */
  setResources(resources: Resources): void {
    this.group.set(resources);
    this.#resources = resources;
  }

  /** Ends it; resolves when its last process and its control group are gone. */
  remove(): Promise<void> {
    this.#removal ??= this.#remove().catch((error: unknown) => {
      this.#removal = undefined;
      throw error;
    });
    return this.#removal;
  }

  async #remove(): Promise<void> {
    this.#keeper.kill();
    // What is frozen does not die in control groups of version 1.
    this.group.thaw();
    await this.ended;
    await this.group.remove();
  }

  /** Pauses and resumes one after the other. */
  #change(act: () => Promise<void>): Promise<void> {
    const changing = this.#changing.then(() => {
      if (this.#removal !== undefined || !this.running) throw terminated();
      return act();
    });
    this.#changing = changing.catch(() => {});
    return changing;
  }
}

/** Waits until a process is no more, or is only remembered by its parent. With process 1 goes all of its namespace. */
async function processGone(pid: number, begun: string | undefined): Promise<void> {
  if (begun === undefined) return;
  for (let pauseMs = 1; startOf(pid) === begun; pauseMs = Math.min(pauseMs * 2, 50)) {
    const state = stateOf(pid);
    if (state === "Z" || state === "X") return;
    await sleep(pauseMs);
  }
}
