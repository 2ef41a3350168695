import { readFile } from "node:fs/promises";
import type { ContainerInspectInfo } from "dockerode";
import {
  type Freezer,
  groupDirectories,
  groupFreezer,
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
import type { OutsideControl } from "../port.ts";
import { parseLabels } from "./container-config.ts";
import type { StartGate } from "./start-gate.ts";

const SIGKILL = 9;
/** How long starts under way may keep a container from being frozen. */
const CLOSE_MS = 200;

/** Outside control of containers whose processes the service sees: those of a daemon on its machine, if it runs as root. */
export class OutsideViews {
  readonly #gate: StartGate;
  readonly #views = new Map<string, OutsideControl | undefined>();
  readonly #opening = new Map<string, Promise<OutsideControl | undefined>>();
  readonly #freezers = new Map<string, Freezer>();
  readonly #namespaces = new NamespaceTable();
  /** Kill the first processes of containers. */
  readonly #ends = new Map<string, () => void>();

  constructor(gate: StartGate) {
    this.#gate = gate;
  }

  /** Undefined where the container's processes are not visible. Callers at the same time share one inspection. */
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

  /** What {@link of} returned before. */
  known(ref: string): OutsideControl | undefined {
    return this.#views.get(ref);
  }

  /** Forgets a container that is gone. */
  forget(ref: string): void {
    this.#views.delete(ref);
    this.#opening.delete(ref);
    this.#ends.delete(ref);
    this.#freezers.delete(ref);
  }

  /** Kills a container's first process, and so all others, if it is visible. Docker takes some milliseconds to get to that. */
  end(ref: string): void {
    this.#ends.get(ref)?.();
  }

  /** Thaws a container that a pause left frozen, where its control group can be reached. */
  thaw(ref: string): void {
    this.#freezers.get(ref)?.thaw();
  }

  async #open(ref: string, { State, Config }: ContainerInspectInfo): Promise<OutsideControl | undefined> {
    // With a kernel of its own it shows no processes to this one.
    if (parseLabels(Config.Labels).isolation !== "CONTAINER" || State.Pid <= 1) return undefined;
    const groups = groupsOf(State.Pid)
      .split("\n")
      // The daemon's pids may belong to another pid namespace, and then mean any process.
      .filter((line) => line.includes(ref));
    const mountinfo = await readFile("/proc/self/mountinfo", "latin1");
    const found = groupDirectories(groups.join("\n"), mountinfo);
    const directories = new Map([...found].filter(([, directory]) => directory.includes(ref)));
    const unified = directories.get("");
    const freezer = directories.get("freezer") ?? unified;
    const memory = directories.get("memory") ?? unified;
    const pids = directories.get("pids") ?? unified;
    const processes = freezer ?? pids;
    if (processes === undefined) return undefined;
    const freeze = freezer === undefined ? NO_FREEZER : this.#gated(ref, groupFreezer(freezer));
    this.#freezers.set(ref, freeze);
    const scope = groupScope(processes, ref);
    const main = readProcess(State.Pid);
    if (main !== undefined) this.#ends.set(ref, () => signalProcess(scope, main, SIGKILL));
    const oomFile = directories.has("memory") ? "memory.oom_control" : "memory.events";
    return new OutsideView({
      scope,
      // The runtime moves a process into the container's group after it has become visible, and stoppable, there.
      entering: namespaceScope(State.Pid, this.#namespaces),
      isHalfWayIn: (name) => name.startsWith("runc:["),
      level: idsOf(State.Pid, "NSpid").length - 1,
      freezer: freeze,
      // `docker exec` by hand fails in a container that is frozen.
      freezeLast: true,
      oldestStartMs: () => this.#gate.oldestStartMs(ref),
      oomKills: () => (memory === undefined ? undefined : readCount(`${memory}/${oomFile}`, "oom_kill")),
      isFull: async () => pids !== undefined && isFull(pids),
    });
  }

  /** A start in a frozen container fails, and Docker's own pause must not be undone. */
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
