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
import { groupScope, groupsOf, idsOf, NamespaceTable, namespaceScope } from "../outside/host-process.ts";
import type { OutsideControl } from "../port.ts";
import { parseLabels } from "./container-config.ts";
import { UNDUMPABLE_TARGET } from "./container-pipes.ts";
import type { StartGate } from "./start-gate.ts";

/** How long starts under way may keep a container from being frozen. */
const CLOSE_MS = 200;

/** Outside control of containers whose processes the service sees: those of a daemon on its machine, if it runs as root. */
export class OutsideViews {
  readonly #gate: StartGate;
  readonly #views = new Map<string, OutsideControl | undefined>();
  readonly #freezers = new Map<string, Freezer>();
  readonly #namespaces = new NamespaceTable();

  constructor(gate: StartGate) {
    this.#gate = gate;
  }

  /** Undefined where the container's processes are not visible. */
  async of(ref: string, inspect: () => Promise<ContainerInspectInfo>): Promise<OutsideControl | undefined> {
    if (this.#views.has(ref)) return this.#views.get(ref);
    const view = process.getuid?.() === 0 ? await this.#open(ref, await inspect()) : undefined;
    this.#views.set(ref, view);
    return view;
  }

  /** What {@link of} returned before. */
  known(ref: string): OutsideControl | undefined {
    return this.#views.get(ref);
  }

  /** Forgets a container that is gone. */
  forget(ref: string): void {
    this.#views.delete(ref);
    this.#freezers.delete(ref);
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
    const oomFile = directories.has("memory") ? "memory.oom_control" : "memory.events";
    return new OutsideView({
      undumpable: UNDUMPABLE_TARGET,
      scope: groupScope(processes, ref),
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
