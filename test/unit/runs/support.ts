import { EgressManager } from "../../../src/egress/manager.ts";
import { RunManager } from "../../../src/runs/manager.ts";
import type { RunSettings } from "../../../src/runs/run.ts";
import { RunningRuns } from "../../../src/runs/running-runs.ts";
import type { RunStore } from "../../../src/runs/store.ts";
import { EngineMonitor } from "../../../src/sandboxes/engine-monitor.ts";
import { SandboxJournal } from "../../../src/sandboxes/journal.ts";
import { SandboxManager } from "../../../src/sandboxes/manager.ts";
import { SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";
import { State } from "../../../src/state/state.ts";
import { HOST_MOUNTS } from "../../support/host-mounts.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";
import { MemoryEngine } from "../../support/memory-engine.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { memoryStore } from "../../support/memory-store.ts";
import { mortal } from "../../support/mortal.ts";

export const RUN_SETTINGS: RunSettings = {
  name: "",
  maxSteps: 3,
  duplicateThreshold: 2,
  stepTimeoutMs: 20_000,
  maxDurationMs: undefined,
  nextStepPrompt: "",
  sandbox: { kind: "made", spec: {} },
  onEnd: "DELETE_SANDBOX",
};

/**
 * A service's runs and sandboxes, with an engine and a clock that a test controls, and a store that outlives the
 * service.
 */
export class RunBench {
  readonly engine = new MemoryEngine();
  readonly clock = new ManualClock();
  readonly log = new MemoryLog();
  readonly store = memoryStore();
  /** Runs that {@link RunProcesses} was asked to end. */
  readonly killed: string[] = [];
  /** How the processes of a run end. */
  endProcesses: () => Promise<void> = async () => {};
  /** Takes effect with the next restart. */
  maxBytesPerOwner = 2 ** 29;
  runs!: RunManager;
  sandboxes!: SandboxManager;
  running!: RunningRuns;
  #alive = { yes: true };
  #stop = (): void => {};

  readonly #maxRunning: number | undefined;

  private constructor(maxRunning: number | undefined) {
    this.#maxRunning = maxRunning;
  }

  /** @param maxRunning the limit of runs that are RUNNING; undefined: the default. */
  static async start(maxRunning?: number): Promise<RunBench> {
    const bench = new RunBench(maxRunning);
    await bench.#begin();
    return bench;
  }

  /** Kills the service, and starts it again after a while. */
  async restart(downMs = 0): Promise<void> {
    await this.kill();
    await this.clock.advance(downMs);
    await this.#begin();
  }

  /** Kills the service: nothing that it was doing continues. */
  async kill(): Promise<void> {
    this.#alive.yes = false;
    this.clock.forgetTimers();
    this.#stop();
    await settled();
  }

  async #begin(): Promise<void> {
    const { engine, clock, log } = this;
    const alive = { yes: true };
    this.#alive = alive;
    const store = mortal(this.store, alive);
    const state = new State(store, { clock, logger: log });
    const monitor = await EngineMonitor.connect(engine, log);
    this.#stop = () => monitor.stop();
    const observer = { ready() {}, ending() {} };
    this.sandboxes = new SandboxManager(
      {
        maxSandboxes: 1000,
        cleanupIntervalMs: 300_000,
        deleteGraceMs: 0,
        defaults: SANDBOX_DEFAULTS,
        warmPools: [],
      },
      {
        ...state,
        journal: new SandboxJournal({ ...state, store: store.sandboxes }),
        engine,
        monitor,
        clock,
        logger: log,
        observer,
        egress: new EgressManager(engine, log),
        mounts: HOST_MOUNTS,
      },
    );
    this.running = new RunningRuns(clock, state.time, this.#maxRunning);
    this.runs = new RunManager({
      store: mortal<RunStore>(this.store.runs, alive),
      transaction: (work) => this.store.transaction(work),
      writeBehind: state.writeBehind,
      sandboxes: this.sandboxes,
      processes: {
        endRun: (_owner, runId) => {
          this.killed.push(runId);
          return this.endProcesses();
        },
      },
      running: this.running,
      maxBytesPerOwner: this.maxBytesPerOwner,
      clock,
      time: state.time,
      logger: log,
    });
    state.start();
    await this.sandboxes.recover();
    this.sandboxes.start();
    this.runs.recover();
    await settled();
  }

  /** Ids of the sandboxes that the engine has. */
  get containers(): string[] {
    return [...this.engine.sandboxes.values()].map(({ sandboxId }) => sandboxId).sort();
  }
}
