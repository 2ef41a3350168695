import { afterAll, beforeAll, expect } from "vitest";
import { EngineMonitor } from "../../../src/core/engine-monitor.ts";
import { EventLog } from "../../../src/core/event-log.ts";
import type { SandboxManager as Manager, SandboxName } from "../../../src/core/sandbox-manager.ts";
import { SandboxManager } from "../../../src/core/sandbox-manager.ts";
import { type RequestedSpec, SANDBOX_DEFAULTS } from "../../../src/core/spec.ts";
import { SystemClock } from "../../../src/core/system-clock.ts";
import { DockerEngine } from "../../../src/engine/docker/engine.ts";
import { fromText } from "../../../src/files/byte-string.ts";
import { FileManager } from "../../../src/files/file-manager.ts";
import type { RequestedPath } from "../../../src/files/path.ts";
import { ProcessControl } from "../../../src/process/control.ts";
import { Lanes } from "../../../src/process/lanes.ts";
import { PlainRunner } from "../../../src/process/plain-runner.ts";
import { expectNoContainers } from "../../support/app.ts";
import { containerOf, rawExec } from "../../support/docker.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { newInstance } from "../../support/settings.ts";

const OWNER = "tests";
const NEVER = new AbortController().signal;

/** A sandbox with files in it, over a real engine and without the port. */
export class FileBench {
  readonly files: FileManager;
  readonly sandboxes: Manager;
  readonly sandbox: SandboxName;
  readonly log: MemoryLog;
  readonly #instance: string;
  readonly #engine: DockerEngine;

  private constructor(parts: {
    files: FileManager;
    sandboxes: Manager;
    sandbox: SandboxName;
    log: MemoryLog;
    instance: string;
    engine: DockerEngine;
  }) {
    this.files = parts.files;
    this.sandboxes = parts.sandboxes;
    this.sandbox = parts.sandbox;
    this.log = parts.log;
    this.#instance = parts.instance;
    this.#engine = parts.engine;
  }

  static async start(spec: RequestedSpec): Promise<FileBench> {
    const clock = new SystemClock();
    const log = new MemoryLog();
    const instance = newInstance();
    const engine = new DockerEngine({ instance, logger: log, allowedHostPaths: [], allowedRuntimes: {} });
    const monitor = await EngineMonitor.connect(engine, log);
    const lanes = new Lanes(engine, new PlainRunner(engine), { spare: 1, most: 16, idleMs: 60_000 }, log);
    const control = new ProcessControl(lanes);
    const sandboxes = new SandboxManager(
      {
        maxSandboxes: 10,
        cleanupIntervalMs: 300_000,
        deleteGraceMs: 1_000,
        warmPools: [],
        defaults: SANDBOX_DEFAULTS,
      },
      {
        engine,
        monitor,
        events: new EventLog(clock),
        clock,
        logger: log,
        observer: { ready: (sandbox) => lanes.open(sandbox), ending: ({ ref }) => lanes.close(ref) },
      },
    );
    sandboxes.start();
    const files = new FileManager(
      { maxOperationsPerSandbox: 64 },
      { sandboxes, runner: lanes, control, clock, logger: log },
    );
    const { sandboxId } = await sandboxes.create(OWNER, spec, { signal: NEVER });
    return new FileBench({ files, sandboxes, sandbox: { owner: OWNER, sandboxId }, log, instance, engine });
  }

  /** Which sandbox, as its own user. */
  get here(): { sandbox: SandboxName; user: undefined } {
    return { sandbox: this.sandbox, user: undefined };
  }

  /** Runs a shell line in the container as root; fails unless it ends with code 0. */
  async sh(line: string): Promise<Buffer> {
    const container = await containerOf(this.#instance, this.sandbox.sandboxId);
    const { stdout, stderr, exitCode } = await rawExec(container, ["/bin/sh", "-c", line]);
    if (exitCode !== 0) throw new Error(`exit code ${exitCode} of ${line}: ${stderr}`);
    return stdout;
  }

  /** Ends it, and fails where an operation still holds the sandbox, or something was logged as an error. */
  async stop(): Promise<void> {
    const { activeOperations } = this.sandboxes.get(this.sandbox);
    await this.sandboxes.shutdown({ leave: false, timeoutMs: 30_000 });
    await this.#engine.close();
    await expectNoContainers(this.#instance);
    expect(activeOperations).toBe(0);
    expect(this.log.errors).toEqual([]);
  }
}

/** Gives every test of a block one sandbox. */
export function useFileBench(spec: RequestedSpec): () => FileBench {
  let bench: FileBench | undefined;
  beforeAll(async () => {
    bench = await FileBench.start(spec);
  });
  afterAll(() => bench?.stop());
  return () => {
    if (bench === undefined) throw new Error("there is no sandbox before the tests run");
    return bench;
  };
}

/** A path as a request gives it. */
export function at(path: string): RequestedPath {
  return { field: "path", bytes: fromText(path) };
}

/** A path of bytes. */
export function atBytes(...parts: readonly (string | Uint8Array)[]): RequestedPath {
  const bytes = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  return { field: "raw_path", bytes: bytes.toString("latin1") };
}

/** A signal that is never aborted. */
export const never = NEVER;
