import path from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { fromBytes, fromText } from "../../../src/base/byte-string.ts";
import { type Clock, SystemClock } from "../../../src/base/clock.ts";
import { BerthError } from "../../../src/base/errors.ts";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { EgressManager } from "../../../src/egress/manager.ts";
import { DockerEngine } from "../../../src/engine/docker/engine.ts";
import { FileManager } from "../../../src/files/manager.ts";
import type { RequestedPath } from "../../../src/files/path.ts";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { ProcessControl } from "../../../src/processes/control.ts";
import { Lanes } from "../../../src/processes/shell/lanes.ts";
import { PlainRunner } from "../../../src/processes/shell/plain-job.ts";
import { EngineMonitor } from "../../../src/sandboxes/engine-monitor.ts";
import { SandboxJournal } from "../../../src/sandboxes/journal.ts";
import type { SandboxManager as Manager, SandboxName } from "../../../src/sandboxes/manager.ts";
import { SandboxManager } from "../../../src/sandboxes/manager.ts";
import { type RequestedSpec, SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";
import { State } from "../../../src/state/state.ts";
import { expectNoContainers } from "../../support/app.ts";
import { containerOf, type RawResult, rawExec, rawShell } from "../../support/docker.ts";
import { HOST_MOUNTS } from "../../support/host-mounts.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../support/images.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { memoryStore } from "../../support/memory-store.ts";
import type { ScriptShell } from "../../support/script-shell.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";

const OWNER = "tests";

/** A signal that is never aborted. */
export const never = new AbortController().signal;

/** A sandbox with files, on a real engine and without the port. */
export class FileBench {
  readonly files: FileManager;
  readonly sandboxes: Manager;
  readonly sandbox: SandboxName;
  readonly log: MemoryLog;
  readonly instance: string;
  /** Of what watches know. */
  readonly memory: MemoryBudget;
  readonly #engine: DockerEngine;
  #shell: Promise<ScriptShell> | undefined;

  private constructor(parts: {
    files: FileManager;
    sandboxes: Manager;
    sandbox: SandboxName;
    log: MemoryLog;
    instance: string;
    memory: MemoryBudget;
    engine: DockerEngine;
  }) {
    this.files = parts.files;
    this.sandboxes = parts.sandboxes;
    this.sandbox = parts.sandbox;
    this.log = parts.log;
    this.instance = parts.instance;
    this.memory = parts.memory;
    this.#engine = parts.engine;
  }

  static async start(spec: RequestedSpec, clock: Clock): Promise<FileBench> {
    const log = new MemoryLog();
    const instance = newInstance();
    // Services use pipes. Without them each shell costs a docker exec: that way is tried with one image.
    const pipesDir = spec === IMAGES[0]?.spec ? undefined : path.join(newDataDir(), "pipes");
    const engine = new DockerEngine({
      ...{ instance, logger: log, allowedHostPaths: [], allowedRuntimes: {} },
      ...(pipesDir !== undefined && { pipesDir }),
    });
    const monitor = await EngineMonitor.connect(engine, log);
    const store = memoryStore();
    const state = new State(store, { clock, logger: log });
    const lanes = new Lanes(engine, new PlainRunner(engine), { spare: 1, max: 16, idleMs: 60_000 }, log);
    const control = new ProcessControl({ shells: lanes, engine, giveUp: () => false });
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
        ...state,
        journal: new SandboxJournal({ ...state, store: store.sandboxes }),
        clock,
        logger: log,
        egress: new EgressManager(engine, log),
        mounts: HOST_MOUNTS,
        observer: { ready: (sandbox) => lanes.open(sandbox), ending: ({ ref }) => lanes.close(ref) },
      },
    );
    sandboxes.start();
    const memory = new MemoryBudget(64 * 2 ** 20);
    const files = new FileManager(
      { maxOperationsPerSandbox: 64 },
      { sandboxes, runner: lanes, control, names: new TemporaryNames(instance), memory, clock, logger: log },
    );
    const { sandboxId } = await sandboxes.create(OWNER, spec, { signal: never });
    return new FileBench({
      files,
      sandboxes,
      sandbox: { owner: OWNER, sandboxId },
      log,
      instance,
      memory,
      engine,
    });
  }

  stat(path: Path, more: { followLink?: boolean; user?: string } = {}) {
    return this.files.stat({ followLink: false, ...this.#about(path), ...more }, never);
  }

  list(path: Path, more: { after?: string; limit?: number; user?: string } = {}) {
    return this.files.list({ after: undefined, limit: 1000, ...this.#about(path), ...more }, never);
  }

  makeDirectory(path: Path, more: { mode?: number; createParents?: boolean; user?: string } = {}) {
    return this.files.makeDirectory(
      { mode: 0o755, createParents: false, ...this.#about(path), ...more },
      never,
    );
  }

  remove(path: Path, more: { recursive?: boolean; allowMissing?: boolean; user?: string } = {}) {
    return this.files.remove({ recursive: false, allowMissing: false, ...this.#about(path), ...more }, never);
  }

  move(
    source: Path,
    target: Path,
    more: { overwrite?: boolean; createParents?: boolean; user?: string } = {},
  ) {
    const { sandbox, user } = this.#about(source);
    const paths = { source: pathOf(source), target: { ...pathOf(target), field: "target_path" } };
    return this.files.move(
      { overwrite: false, createParents: false, sandbox, user, ...paths, ...more },
      never,
    );
  }

  read(path: Path, more: { offset?: number; limit?: number; user?: string } = {}) {
    return this.files.read({ offset: 0, limit: 8 << 20, ...this.#about(path), ...more }, never);
  }

  write(path: Path, data: Uint8Array | string, more: WriteMore & { append?: boolean } = {}) {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    return this.files.write(
      { ...WRITE, append: false, data: bytes, ...this.#about(path), ...more },
      more.signal ?? never,
    );
  }

  upload(path: Path, chunks: AsyncIterable<Uint8Array>, more: WriteMore & { sizeBytes?: number } = {}) {
    const request = { ...WRITE, sizeBytes: undefined, ...this.#about(path), ...more };
    return this.files.upload(request, chunks, more.signal ?? never);
  }

  download(path: Path, more: { offset?: number; user?: string; signal?: AbortSignal } = {}) {
    return this.files.download({ offset: 0, ...this.#about(path), ...more }, more.signal ?? never);
  }

  downloadArchive(path: Path, more: { user?: string; signal?: AbortSignal } = {}) {
    return this.files.downloadArchive({ ...this.#about(path), ...more }, more.signal ?? never);
  }

  uploadArchive(path: Path, chunks: AsyncIterable<Uint8Array>, more: Omit<WriteMore, "mode"> = {}) {
    const request = { createParents: false, ...this.#about(path), ...more };
    return this.files.uploadArchive(request, chunks, more.signal ?? never);
  }

  watch(path: Path, more: { recursive?: boolean; intervalMs?: number; signal: AbortSignal }) {
    return this.files.watch(
      { recursive: false, intervalMs: 100, ...this.#about(path), ...more },
      more.signal,
    );
  }

  /** The content of a file, as the container sees it. */
  content(path: string): Promise<Buffer> {
    return this.sh(`cat '${path}'`);
  }

  /** Operations that hold the sandbox. */
  get activeOperations(): number {
    return this.sandboxes.get(this.sandbox).activeOperations;
  }

  #about(path: Path) {
    return { sandbox: this.sandbox, user: undefined, path: pathOf(path) };
  }

  /** Runs a shell line in the container as root. Fails unless it exits with code 0. */
  async sh(line: string): Promise<Buffer> {
    const { stdout, stderr, exitCode } = await this.#run(line);
    if (exitCode !== 0) throw new Error(`exit code ${exitCode} of ${line}: ${stderr}`);
    return stdout;
  }

  async #run(line: string): Promise<RawResult> {
    this.#shell ??= containerOf(this.instance, this.sandbox.sandboxId).then(rawShell);
    const shell = await this.#shell;
    if (shell.isFree) return shell.run(line);
    const container = await containerOf(this.instance, this.sandbox.sandboxId);
    return rawExec(container, ["/bin/sh", "-c", line]);
  }

  /** Stops it. Fails if an operation still holds the sandbox, or an error was logged. */
  async stop(): Promise<void> {
    const { activeOperations } = this.sandboxes.get(this.sandbox);
    await this.sandboxes.shutdown({ leave: false, timeoutMs: 30_000 });
    await this.#engine.close();
    await expectNoContainers(this.instance);
    expect(activeOperations).toBe(0);
    expect(this.log.errors).toEqual([]);
  }
}

/** Gives all tests of a block one sandbox. */
export function useFileBench(spec: RequestedSpec, clock: Clock = new SystemClock()): () => FileBench {
  let bench: FileBench | undefined;
  beforeAll(async () => {
    bench = await FileBench.start(spec, clock);
  });
  afterAll(() => bench?.stop());
  return () => {
    if (bench === undefined) throw new Error("there is no sandbox before the tests run");
    return bench;
  };
}

/** A path: text, or bytes. */
type Path = string | Uint8Array;

interface WriteMore {
  mode?: number;
  createParents?: boolean;
  user?: string;
  signal?: AbortSignal;
}

const WRITE = { mode: undefined, createParents: false };

function pathOf(path: Path): RequestedPath {
  return typeof path === "string"
    ? { field: "path", bytes: fromText(path) }
    : { field: "raw_path", bytes: fromBytes(path) };
}

/** The error of a refused operation. Fails if it succeeds. */
export async function refusal(work: Promise<unknown> | AsyncIterable<unknown>): Promise<BerthError> {
  try {
    if (work instanceof Promise) await work;
    else for await (const _ of work);
  } catch (error) {
    if (error instanceof BerthError) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}

/** The images to test with: coreutils and dash, and busybox; as root and as another user. */
export const IMAGES: readonly { readonly title: string; readonly spec: RequestedSpec }[] = [
  { title: "Debian", spec: { image: TEST_IMAGE } },
  { title: "busybox", spec: { image: BUSYBOX_IMAGE } },
  { title: "Debian, not as root", spec: { image: TEST_IMAGE, user: "1000:1000" } },
  { title: "busybox, not as root", spec: { image: BUSYBOX_IMAGE, user: "1000:1000" } },
];
