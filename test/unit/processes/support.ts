import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { ProcessControl } from "../../../src/processes/control.ts";
import { ProcessJournal } from "../../../src/processes/journal.ts";
import {
  type CommandRequest,
  type ProcessEvent,
  ProcessManager,
  type RunStates,
} from "../../../src/processes/manager.ts";
import type { ExitStatus } from "../../../src/processes/record.ts";
import { SecretRunner } from "../../../src/processes/secret-runner.ts";
import { SpillDirectory } from "../../../src/processes/spill.ts";
import { TranscriptBudget } from "../../../src/processes/transcript-budget.ts";
import type { SandboxManager } from "../../../src/sandboxes/manager.ts";
import { settled } from "../../support/manual-clock.ts";
import { mortal } from "../../support/mortal.ts";
import { newManager, newWorld, OWNER } from "../sandboxes/support.ts";
import { type FakeJob, FakeOutside, FakeRunner, unused } from "./fake-jobs.ts";

export const never = new AbortController().signal;
/** The value of every secret. */
const SECRET = "hunter22";

/** The stream of a process. It reads everything. */
export class Stream {
  readonly events: ProcessEvent[] = [];
  /** Resolves when the stream has ended; rejects with its error. */
  readonly over: Promise<void>;
  readonly #caller: AbortController;

  constructor(events: AsyncGenerator<ProcessEvent>, caller: AbortController) {
    this.#caller = caller;
    this.over = this.#read(events);
    this.over.catch(() => {});
  }

  /** The caller disconnects. */
  leave(): void {
    this.#caller.abort();
  }

  get processId(): string {
    const started = this.events.find((event) => event.type === "started");
    if (started === undefined) throw new Error("the process has not started");
    return started.processId;
  }

  /** How the process ended; undefined before it is reported. */
  get status(): ExitStatus | undefined {
    return this.events.find((event) => event.type === "exited")?.status;
  }

  get stdout(): string {
    const output = this.events.filter((event) => event.type === "output" && event.stream === "stdout");
    return Buffer.concat(output.map((event) => ("data" in event ? event.data : Buffer.alloc(0)))).toString();
  }

  async #read(events: AsyncGenerator<ProcessEvent>): Promise<void> {
    for await (const event of events) this.events.push(event);
  }
}

/** Options of a {@link ProcessBench}. */
interface BenchSettings {
  readonly maxProcesses?: number;
  readonly keepaliveMs?: number;
  readonly windowBytes?: number;
  /** Whether output may be on disk, as in a service. */
  readonly spill?: boolean;
  /** In real time, which a kill uses. */
  readonly killGraceMs?: number;
  readonly memory?: MemoryBudget;
}

/**
 * A service's processes and sandboxes, with jobs, an engine and a clock that a test controls, and a store that outlives
 * the service.
 */
export class ProcessBench {
  readonly world = newWorld();
  readonly runner = new FakeRunner();
  /** Ids of the runs that are RUNNING. */
  readonly running = new Set<string>();
  sandboxes!: SandboxManager;
  processes!: ProcessManager;
  /** The default sandbox of commands. */
  sandbox = { owner: OWNER, sandboxId: "" };
  #alive = { yes: true };
  #stop = (): void => {};
  readonly #settings: BenchSettings;
  readonly #directory: string;

  private constructor(settings: BenchSettings, directory: string) {
    this.#settings = settings;
    this.#directory = directory;
  }

  static async start(settings: BenchSettings = {}): Promise<ProcessBench> {
    const directory = await mkdtemp(path.join(tmpdir(), "berth-processes-"));
    onTestFinished(() => rm(directory, { recursive: true }));
    const bench = new ProcessBench(settings, directory);
    await bench.begin();
    const { sandboxId } = await bench.sandboxes.create(OWNER, {}, { signal: never });
    bench.sandbox = { owner: OWNER, sandboxId };
    return bench;
  }

  get clock() {
    return this.world.clock;
  }

  get engine() {
    return this.world.engine;
  }

  get job(): FakeJob {
    return this.runner.job;
  }

  /** Kills the service and starts it again. */
  async restart(): Promise<void> {
    await this.kill();
    await this.begin();
  }

  /** Kills the service: nothing that it was doing continues. */
  async kill(): Promise<void> {
    this.#alive.yes = false;
    this.clock.forgetTimers();
    this.#stop();
    for (const job of this.runner.jobs) job.leave();
    await settled();
  }

  /** Starts a service with the state that the previous one left. */
  async begin(): Promise<void> {
    const { clock, engine } = this.world;
    const { maxProcesses = 100, keepaliveMs = 600_000, windowBytes = 1_000_000 } = this.#settings;
    const { killGraceMs = 2_000, spill = false, memory } = this.#settings;
    const alive = { yes: true };
    this.#alive = alive;
    const store = mortal(this.world.store, alive);
    const { manager, monitor, state, log } = await newManager({}, { engine, clock, store });
    this.#stop = () => monitor.stop();
    this.sandboxes = manager;
    const disk = await SpillDirectory.create(this.#directory);
    const control = new ProcessControl({
      shells: { ask: () => Promise.reject(unused()) },
      engine: { outside: async () => new FakeOutside(this.runner) },
      giveUp: ({ ref }, why, options) => manager.giveUp(ref, why, options),
    });
    engine.recover = async (left) => {
      // An engine takes its time to read the pipes, and timers fire meanwhile.
      await clock.advance(0);
      const found = left.map(({ handle, sink }) =>
        this.runner.jobs.findLast((job) => job.trace.handle === handle)?.reattach(sink),
      );
      await settled();
      return found;
    };
    const runs: RunStates = {
      has: (_, runId) => this.running.has(runId),
      assertRunning: (_, runId) => {
        if (!this.running.has(runId)) throw new BerthError("RUN_STATE", "The run is not RUNNING.");
      },
    };
    this.processes = new ProcessManager(
      { maxProcessesPerSandbox: maxProcesses, keepaliveMs },
      manager,
      state.requests,
      runs,
      {
        runner: new SecretRunner(this.runner, { resolve: async (_, names) => names.map(() => SECRET) }),
        control,
        clock,
        logger: log,
        transcript: { windowBytes, headBytes: 1_000, memoryBytes: windowBytes },
        transcripts: new TranscriptBudget({ bytes: 1e9, ownerBytes: 1e9, memoryBytes: 1e9 }),
        openSpill: spill ? () => disk.open() : undefined,
        killGraceMs,
        journal: new ProcessJournal({ ...state, store: store.processes, disk, engine }),
        ...(memory && { memory }),
      },
    );
    await manager.recover();
    await this.processes.recover();
    manager.start();
    state.start();
    await settled();
  }

  /** Runs a command and streams it. Returns when nothing more happens by itself. */
  async exec(more: Partial<CommandRequest> = {}): Promise<Stream> {
    const caller = new AbortController();
    const stream = new Stream(this.processes.exec(this.request(more), caller.signal), caller);
    await settled();
    return stream;
  }

  /** Streams a process from the given offset of its stdout. */
  async attach(processId: string, stdout = 0, owner = OWNER): Promise<Stream> {
    const caller = new AbortController();
    const from = { stdout, stderr: 0 };
    const stream = new Stream(this.processes.attach(owner, processId, from, caller.signal), caller);
    await settled();
    return stream;
  }

  request(more: Partial<CommandRequest> = {}): CommandRequest {
    return {
      sandbox: this.sandbox,
      command: { kind: "argv", args: ["true"] },
      env: {},
      workingDir: undefined,
      user: undefined,
      timeoutMs: undefined,
      terminal: undefined,
      stdin: new Uint8Array(),
      keepStdinOpen: false,
      onDisconnect: "KILL",
      disconnectGraceMs: 0,
      outputLimitBytes: undefined,
      runId: "",
      requestId: "",
      fingerprint: "",
      ...more,
    };
  }

  /** Names of the files that hold output. */
  get files(): string[] {
    return readdirSync(this.#directory);
  }

  /** Ids of the processes in the store. */
  get stored(): string[] {
    const { processes } = this.world.store;
    return [...processes.ended(), ...processes.unsummarized()].map(({ processId }) => processId);
  }

  /** Number of active operations in the sandbox. */
  get operations(): number {
    return this.sandboxes.get(this.sandbox).activeOperations;
  }

  /** Removes the sandbox without the service. */
  async vanish(): Promise<void> {
    const [ref = ""] = [...this.engine.sandboxes.keys()];
    this.engine.vanish(ref);
    await settled();
  }
}
