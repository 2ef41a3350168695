import { readFile } from "node:fs/promises";
import type { ContainerInspectInfo } from "dockerode";
import {
  type Freezer,
  GroupFreezer,
  groupDirectories,
  groupUsage,
  isFull,
  NO_FREEZER,
  readCount,
} from "../outside/cgroup.ts";
import { OutsideView } from "../outside/control.ts";
import {
  groupScope,
  groupsOf,
  idsOf,
  NamespaceTable,
  namespaceScope,
  readProcess,
  signalProcess,
} from "../outside/host-process.ts";
import type { EngineUsage, OutsideControl } from "../port.ts";
import { parseLabels } from "./container-config.ts";
import type { StartGate } from "./start-gate.ts";

const SIGKILL = 9;
/** How long starts in progress may delay freezing a container. */
const CLOSE_MS = 200;

/**
 * Outside control of containers whose processes the service can see: if the daemon is on this machine and the service
 * runs as root.
 */
export class OutsideViews {
  readonly #gate: StartGate;
  readonly #views = new Map<string, OutsideControl | undefined>();
  readonly #opening = new Map<string, Promise<OutsideControl | undefined>>();
  readonly #freezers = new Map<string, Freezer>();
  /** Containers' control groups, for {@link groupUsage}. */
  readonly #groups = new Map<string, ReadonlyMap<string, string>>();
  readonly #namespaces = new NamespaceTable();
  /** Functions that kill a container's first process. */
  readonly #ends = new Map<string, () => boolean>();

  constructor(gate: StartGate) {
    this.#gate = gate;
  }

  /** The view of a container; undefined if its processes are not visible. Concurrent callers share one inspection. */
  async of(ref: string, inspect: () => Promise<ContainerInspectInfo>): Promise<OutsideControl | undefined> {
    if (this.#views.has(ref)) return this.#views.get(ref);
    if (process.getuid?.() !== 0) return undefined;
    const opening = this.#opening.get(ref) ?? inspect().then((container) => this.#open(ref, container));
    this.#opening.set(ref, opening);
    try {
      const view = await opening;
      if (this.#opening.get(ref) === opening) this.#views.set(ref, view);
      return view;
    } finally {
      if (this.#opening.get(ref) === opening) this.#opening.delete(ref);
    }
  }

  /** The previous result of {@link of}. */
  known(ref: string): OutsideControl | undefined {
    return this.#views.get(ref);
  }

  /** Forgets a container that is gone. */
  forget(ref: string): void {
    this.#views.delete(ref);
    this.#opening.delete(ref);
    this.#ends.delete(ref);
    this.#freezers.delete(ref);
    this.#groups.delete(ref);
  }

  /**
   * What a container uses, by its control groups. Undefined before {@link of}, if they are not accessible, and once the
   * container has ended.
   */
  usage(ref: string): EngineUsage | undefined {
    const { memoryBytes, cpuNanos, pids } = groupUsage(this.#groups.get(ref) ?? new Map());
    if (memoryBytes === undefined || cpuNanos === undefined || !pids) return undefined;
    return { memoryBytes, cpuNanos, pids };
  }

  /**
   * Kills a container's first process, and thereby all others, if it is visible. Docker would take some milliseconds to
   * do so. Returns whether they end now: those of a paused container do not.
   */
  end(ref: string): boolean {
    const isKilled = this.#ends.get(ref)?.() ?? false;
    return isKilled && !this.#freezers.get(ref)?.paused;
  }

  /** Thaws a container that a pause left frozen, if its control group is accessible. */
  thaw(ref: string): void {
    this.#freezers.get(ref)?.thaw();
  }

  async #open(ref: string, { State, Config }: ContainerInspectInfo): Promise<OutsideControl | undefined> {
    // The host does not see the processes of a sandbox with its own kernel.
    if (parseLabels(Config.Labels).isolation !== "CONTAINER" || State.Pid <= 1) return undefined;
    const groups = groupsOf(State.Pid)
      .split("\n")
      // If the daemon is in another pid namespace, its pids mean other processes here.
      .filter((line) => line.includes(ref));
    const mountinfo = await readFile("/proc/self/mountinfo", "latin1");
    const found = groupDirectories(groups.join("\n"), mountinfo);
    const directories = new Map([...found].filter(([, directory]) => directory.includes(ref)));
    this.#groups.set(ref, directories);
    const unified = directories.get("");
    const freezer = directories.get("freezer") ?? unified;
    const memory = directories.get("memory") ?? unified;
    const pids = directories.get("pids") ?? unified;
    const processes = freezer ?? pids;
    if (processes === undefined) return undefined;
    const freeze = freezer === undefined ? NO_FREEZER : this.#gated(ref, new GroupFreezer(freezer));
    this.#freezers.set(ref, freeze);
    const scope = groupScope(processes, ref);
    const main = readProcess(State.Pid);
    if (main !== undefined) this.#ends.set(ref, () => signalProcess(scope, main, SIGKILL));
    const oomFile = directories.has("memory") ? "memory.oom_control" : "memory.events";
    return new OutsideView({
      scope,
      // The runtime moves a process into the container's group only after the process is visible, and can be stopped,
      // in the namespace.
      entering: namespaceScope(State.Pid, this.#namespaces),
      isHalfWayIn: (name) => name.startsWith("runc:["),
      level: idsOf(State.Pid, "NSpid").length - 1,
      freezer: freeze,
      // An operator's `docker exec` fails in a frozen container.
      freezeLast: true,
      oldestStartMs: () => this.#gate.oldestStartMs(ref),
      oomKills: () => (memory === undefined ? undefined : readCount(`${memory}/${oomFile}`, "oom_kill")),
      isFull: async () => pids !== undefined && isFull(pids),
    });
  }

  /** Keeps starts out while the container is frozen, because they would fail, and does not undo Docker's own pause. */
  #gated(ref: string, freezer: Freezer): Freezer {
    return {
      get paused() {
        return freezer.paused;
      },
      thaw: () => freezer.thaw(),
      frozen: (act) =>
        this.#gate.closedWithin(ref, CLOSE_MS, (closed) => (closed ? freezer.frozen(act) : act("running"))),
    };
  }
}
