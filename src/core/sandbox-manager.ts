import { isDeepStrictEqual } from "node:util";
import { Capacity } from "./capacity.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import { abortError, BerthError, throwIfAborted } from "./errors.ts";
import type { EventLog } from "./event-log.ts";
import { newId } from "./ids.ts";
import { KeyedLock } from "./keyed-lock.ts";
import type { Lease, SandboxObserver } from "./lease.ts";
import type { CancelTimer, Clock } from "./ports/clock.ts";
import type { Engine, EngineMount, EngineSandbox } from "./ports/engine.ts";
import type { Logger } from "./ports/logger.ts";
import type { SandboxSpec, SandboxState, SandboxView, Termination, TerminationCause } from "./sandbox.ts";
import { SandboxRecord } from "./sandbox-record.ts";
import { SandboxRegistry } from "./sandbox-registry.ts";
import { SandboxTerminator } from "./sandbox-terminator.ts";
import type { RequestedSpec, SandboxDefaults } from "./spec.ts";
import { resolveSpec } from "./spec.ts";
import { WarmPool, type WarmPoolStatus, type WarmPoolTarget, type WarmSandbox } from "./warm-pool.ts";

/** How the manager is set up. */
export interface SandboxManagerSettings {
  readonly maxSandboxes: number;
  readonly cleanupIntervalMs: number;
  /** How long a delete lets active operations run where its caller does not say. */
  readonly deleteGraceMs: number;
  readonly defaults: SandboxDefaults;
  /** Sandboxes that are kept ready to be claimed. */
  readonly warmPools: readonly WarmPoolTarget[];
}

/** What the manager is built of. */
export interface SandboxManagerParts {
  readonly engine: Engine;
  readonly monitor: EngineMonitor;
  readonly events: EventLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: SandboxObserver;
}

/** The figures of {@link SandboxManager.stats}. */
export interface SandboxStats {
  readonly totalSandboxes: number;
  readonly activeOperations: number;
  readonly maxSandboxes: number;
  readonly idleTimeoutMs: number;
  readonly cleanupIntervalMs: number;
  readonly isShuttingDown: boolean;
  readonly warmPools: readonly WarmPoolStatus[];
  readonly sandboxes: readonly {
    readonly sandboxId: string;
    readonly lastUsedMs: number;
    readonly isActive: boolean;
  }[];
}

/** A sandbox named by its owner, and, where the caller knows it, its generation. */
export interface SandboxName {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation?: number;
}

/** Progress of a pull is told at most this often. */
const PROGRESS_INTERVAL_MS = 500;
/** Two sweeps are at least this far apart. */
const SOONEST_SWEEP_MS = 5;
/** Sandboxes that end at the same moment are removed this many at a time. */
const REMOVALS_AT_ONCE = 16;

/**
 * Creates, finds, leases, expires and removes sandboxes.
 *
 * Lifecycle changes of one sandbox happen under the lock of its id; operations
 * take a lease ({@link acquire}) and run side by side. Every method names the
 * owner; what is another owner's is `SANDBOX_NOT_FOUND`.
 */
export class SandboxManager {
  readonly #settings: SandboxManagerSettings;
  readonly #engine: Engine;
  readonly #monitor: EngineMonitor;
  readonly #events: EventLog;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #observer: SandboxObserver;
  readonly #locks = new KeyedLock();
  readonly #capacity: Capacity;
  readonly #registry: SandboxRegistry;
  readonly #terminator: SandboxTerminator;
  readonly #warmPool: WarmPool;
  #sweepTimer: { readonly at: number; readonly cancel: CancelTimer } | undefined;
  #shutdown: Promise<string[]> | undefined;

  constructor(settings: SandboxManagerSettings, parts: SandboxManagerParts) {
    this.#settings = settings;
    this.#engine = parts.engine;
    this.#monitor = parts.monitor;
    this.#events = parts.events;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
    this.#observer = parts.observer;
    this.#capacity = new Capacity(settings.maxSandboxes);
    this.#registry = new SandboxRegistry(parts.clock);
    this.#terminator = new SandboxTerminator(this.#locks, this.#registry, parts);
    const plain = (image: string): SandboxSpec =>
      resolveSpec({ image }, settings.defaults, parts.monitor.info);
    this.#warmPool = new WarmPool(settings.warmPools, plain, parts);
  }

  /** Begins to look for expired sandboxes and to follow what the engine tells. */
  start(): void {
    this.#monitor.follow({
      onEvent: (event) => {
        const record = this.#registry.byRef(event.ref);
        if (record === undefined) {
          this.#warmPool.lost(event.ref);
          return;
        }
        if (event.type === "removed")
          this.#lost(record, "REMOVED_EXTERNALLY", "Its container was removed outside Berth.");
        else this.#ended(record, event.end);
      },
      onSync: (present) => this.#compare(present),
    });
    this.#warmPool.start();
    this.#armSweep(this.#settings.cleanupIntervalMs);
  }

  /**
   * Makes a sandbox, ready to run commands. On failure and on abort nothing is left.
   * @throws `SHUTTING_DOWN`, `SANDBOX_EXISTS`, `SANDBOX_LIMIT`, `INVALID_ARGUMENT`, `IMAGE_UNAVAILABLE`,
   *   `SANDBOX_START_FAILED`, `UNSUPPORTED`, `NOT_ALLOWED`, `ENGINE_UNAVAILABLE`.
   */
  async create(
    owner: string,
    asked: RequestedSpec,
    options: { readonly sandboxId?: string; readonly signal: AbortSignal },
  ): Promise<SandboxView> {
    this.#assertOpen();
    const spec = resolveSpec(asked, this.#settings.defaults, this.#monitor.info);
    const mounts = spec.mounts.map(engineMount);
    const previous =
      options.sandboxId === undefined ? undefined : this.#registry.get(owner, options.sandboxId);
    if (previous?.live) throw exists(previous);
    const reservation = this.#capacity.reserve();
    const warm = this.#warmPool.claim(spec);
    const abort = new AbortController();
    const record = new SandboxRecord({
      sandboxId: options.sandboxId ?? warm?.engine.sandboxId ?? newId("sbx"),
      generation: (previous?.generation ?? 0) + 1,
      owner,
      spec,
      phase: { state: "CREATING", abort },
      reservation,
      clock: this.#clock,
      onIdle: () => this.#armSweep(record.expiry()?.inMs),
    });
    this.#registry.add(record);
    this.#events.append(record, { type: "CREATING" });
    const signal = AbortSignal.any([options.signal, abort.signal]);
    try {
      await this.#locks.run(SandboxRegistry.key(owner, record.sandboxId), async () => {
        const engine = await (warm
          ? this.#adapt(warm, spec, signal)
          : this.#makeCold(record, mounts, signal));
        if (signal.aborted) {
          await this.#engine.remove(engine.ref);
          throw abortError(signal);
        }
        this.#becomeReady(record, engine);
      });
    } catch (error) {
      const message =
        error instanceof BerthError ? error.message : "An unexpected error; the server's log has it.";
      this.#terminator.finish(record, { cause: "CREATE_FAILED", message, timeMs: this.#clock.wallMs() });
      throw error;
    }
    this.#armSweep(record.expiry()?.inMs);
    return this.#view(record);
  }

  get(name: SandboxName): SandboxView {
    return this.#view(this.#find(name));
  }

  /** Sandboxes of an owner that pass the filter, newest first. */
  list(
    owner: string,
    filter: { readonly labels: Readonly<Record<string, string>>; readonly states: ReadonlySet<SandboxState> },
  ): SandboxView[] {
    const wanted = Object.entries(filter.labels);
    return this.#registry
      .all()
      .filter((record) => record.owner === owner && filter.states.has(record.phase.state))
      .filter((record) => wanted.every(([key, value]) => record.spec.labels[key] === value))
      .map((record) => this.#view(record))
      .reverse();
  }

  /** Changes labels or deadlines; what is not named stays. */
  update(
    name: SandboxName,
    change: Partial<Pick<SandboxSpec, "labels" | "idleTimeoutMs" | "maxLifetimeMs">>,
  ): SandboxView {
    const record = this.#findAlive(name);
    record.spec = { ...record.spec, ...change };
    this.#events.append(record, { type: "UPDATED" });
    this.#armSweep(record.expiry()?.inMs);
    return this.#view(record);
  }

  /** Resets the idle clock. */
  keepAlive(name: SandboxName): SandboxView {
    const record = this.#findAlive(name);
    record.touch();
    return this.#view(record);
  }

  /** Freezes every process. Idempotent. */
  async pause(name: SandboxName, signal: AbortSignal): Promise<SandboxView> {
    if (!this.#monitor.info.capabilities.pause) {
      throw new BerthError("UNSUPPORTED", `The engine ${this.#engine.name} cannot pause sandboxes.`);
    }
    return this.#change(name, "RUNNING", "PAUSED", (ref) => this.#engine.pause(ref, signal));
  }

  /** Lets frozen processes go on. Idempotent. */
  async resume(name: SandboxName, signal: AbortSignal): Promise<SandboxView> {
    return this.#change(name, "PAUSED", "RUNNING", (ref) => this.#engine.resume(ref, signal));
  }

  /**
   * Ends a sandbox; returns when it is gone. An unknown or ended one is gone
   * already. Active operations may run on for the grace, then their leases are
   * aborted with `SANDBOX_DELETED`. A deletion goes on when its caller leaves.
   */
  async delete(name: SandboxName, graceMs: number = this.#settings.deleteGraceMs): Promise<void> {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record === undefined || !record.live) return;
    assertGeneration(record, name);
    await this.#terminator.end(record, { cause: "DELETED", message: "It was deleted.", graceMs });
  }

  /**
   * Takes the right to run an operation in a sandbox.
   * @throws `SANDBOX_NOT_FOUND`, `SANDBOX_NOT_RUNNING`, `SANDBOX_REPLACED`, `SHUTTING_DOWN`.
   */
  acquire(name: SandboxName): Lease {
    this.#assertOpen();
    const record = this.#find(name);
    const sandbox = record.leased();
    if (record.phase.state !== "RUNNING" || sandbox === undefined) throw notRunning(record);
    return record.leases.take(sandbox);
  }

  stats(owner: string): SandboxStats {
    const live = this.#registry.live();
    return {
      totalSandboxes: this.#capacity.taken,
      activeOperations: live.reduce((sum, record) => sum + record.leases.count, 0),
      maxSandboxes: this.#capacity.limit,
      idleTimeoutMs: this.#settings.defaults.idleTimeoutMs,
      cleanupIntervalMs: this.#settings.cleanupIntervalMs,
      isShuttingDown: this.#shutdown !== undefined,
      warmPools: this.#warmPool.status(),
      sandboxes: live
        .filter((record) => record.owner === owner)
        .map((record) => ({
          sandboxId: record.sandboxId,
          lastUsedMs: record.lastUsedTimeMs,
          isActive: record.leases.count > 0,
        })),
    };
  }

  /** Ends every sandbox that has reached a deadline, and tries failed removals again. Waits for all of them. */
  async sweep(): Promise<void> {
    const due = this.#registry.live().filter((record) => {
      const stuck = record.phase.state === "DELETING" && record.deletion === undefined;
      return stuck || (record.expiry()?.inMs ?? 1) <= 0;
    });
    await inBatches(due, async (record) => {
      const cause = record.expiry()?.cause;
      const message =
        cause === "MAX_LIFETIME"
          ? `It reached its max_lifetime of ${record.spec.maxLifetimeMs} ms.`
          : `Nothing used it for its idle_timeout of ${record.spec.idleTimeoutMs} ms.`;
      await this.#terminator
        .end(record, {
          cause: cause ?? "DELETED",
          message,
          graceMs: 0,
          onlyIf: () => (record.expiry()?.inMs ?? 1) <= 0,
        })
        .catch((error: unknown) => {
          this.#logger.warn(
            { sandboxId: record.sandboxId, err: error },
            "an expired sandbox is not gone yet; the next sweep tries again",
          );
        });
    });
  }

  /**
   * Takes no more work and stops the sweep; then, unless `leave`, ends every
   * sandbox. Returns after `timeoutMs` at the latest, with the ids of those that
   * are not gone. Later calls get the first one's answer.
   */
  shutdown(options: { readonly leave: boolean; readonly timeoutMs: number }): Promise<string[]> {
    this.#shutdown ??= this.#runShutdown(options);
    return this.#shutdown;
  }

  async #runShutdown(options: { readonly leave: boolean; readonly timeoutMs: number }): Promise<string[]> {
    this.#sweepTimer?.cancel();
    const stopping = new BerthError("SHUTTING_DOWN", "The server is shutting down.");
    for (const { phase } of this.#registry.live())
      if (phase.state === "CREATING") phase.abort.abort(stopping);
    const poolStopped = this.#warmPool.stop();
    if (!options.leave) {
      const all = inBatches(this.#registry.live(), (record) =>
        this.#terminator
          .end(record, { cause: "SERVER_SHUTDOWN", message: "The server stopped.", graceMs: 0 })
          .catch((error: unknown) => {
            this.#logger.error(
              { sandboxId: record.sandboxId, err: error },
              "a sandbox could not be removed at shutdown",
            );
          }),
      );
      const timer = Promise.withResolvers<void>();
      const cancel = this.#clock.setTimer(options.timeoutMs, timer.resolve);
      await Promise.race([Promise.all([all, poolStopped]), timer.promise]);
      cancel();
    }
    this.#monitor.stop();
    return this.#registry.live().map((record) => record.sandboxId);
  }

  async #makeCold(
    record: SandboxRecord,
    mounts: readonly EngineMount[],
    signal: AbortSignal,
  ): Promise<EngineSandbox> {
    throwIfAborted(signal);
    const { spec, sandboxId, generation, owner } = record;
    let toldAt = Number.NEGATIVE_INFINITY;
    await this.#engine.ensureImage(spec.image, {
      signal,
      onProgress: (progress) => {
        const now = this.#clock.monotonicMs();
        if (now - toldAt < PROGRESS_INTERVAL_MS && progress.layersDone < progress.layersTotal) return;
        toldAt = now;
        this.#events.append(record, { type: "IMAGE_PULL", image: spec.image, progress });
      },
    });
    return this.#engine.create({ ...spec, sandboxId, generation, owner, mounts }, signal);
  }

  /** Makes a sandbox that waited into what was asked for. What cannot be made so is removed. */
  async #adapt(warm: WarmSandbox, spec: SandboxSpec, signal: AbortSignal): Promise<EngineSandbox> {
    const { engine, resources } = warm;
    if (isDeepStrictEqual(resources, spec.resources)) return engine;
    try {
      await this.#engine.setResources(engine.ref, spec.resources, signal);
      return engine;
    } catch (error) {
      await this.#engine.remove(engine.ref);
      throw error;
    }
  }

  #becomeReady(record: SandboxRecord, engine: EngineSandbox): void {
    record.phase = { state: "RUNNING", engine };
    record.touch();
    const ready = record.leased();
    if (ready !== undefined) this.#observer.ready(ready);
    this.#events.append(record, { type: "RUNNING" });
  }

  async #change(
    name: SandboxName,
    from: "RUNNING" | "PAUSED",
    to: "RUNNING" | "PAUSED",
    act: (ref: string) => Promise<void>,
  ): Promise<SandboxView> {
    const found = this.#find(name);
    return this.#locks.run(SandboxRegistry.key(found.owner, found.sandboxId), async () => {
      const record = this.#findAlive(name);
      const { phase } = record;
      if (phase.state === from) {
        await act(phase.engine.ref);
        record.phase = { state: to, engine: phase.engine };
        record.touch();
        this.#events.append(record, { type: to === "PAUSED" ? "PAUSED" : "RESUMED" });
      }
      return this.#view(record);
    });
  }

  /** Marks what ended by itself, and takes its container away. */
  #ended(record: SandboxRecord, end: { readonly exitCode: number; readonly outOfMemory: boolean }): void {
    if (end.outOfMemory)
      this.#lost(record, "OUT_OF_MEMORY", "The kernel killed its main process for want of memory.");
    else this.#lost(record, "EXITED", `Its main process ended with code ${end.exitCode}.`);
  }

  #lost(record: SandboxRecord, cause: TerminationCause, message: string): void {
    const { state } = record.phase;
    if (state !== "RUNNING" && state !== "PAUSED") return;
    const termination: Termination = { cause, message, timeMs: this.#clock.wallMs() };
    record.leases.abortAll(
      new BerthError("SANDBOX_TERMINATED", `The sandbox ended: ${message}`, { metadata: { cause } }),
    );
    this.#terminator.end(record, { ...termination, graceMs: 0 }).catch((error: unknown) => {
      this.#logger.warn(
        { sandboxId: record.sandboxId, err: error },
        "an ended sandbox is not removed yet; the next sweep tries again",
      );
    });
  }

  /** Holds what the engine has against what the manager knows, after a time without events. */
  #compare(present: readonly EngineSandbox[]): void {
    const byRef = new Map(present.map((sandbox) => [sandbox.ref, sandbox]));
    this.#warmPool.keepOnly(
      new Set(present.filter(({ state }) => state === "running").map(({ ref }) => ref)),
    );
    for (const record of this.#registry.live()) {
      const { phase } = record;
      if (phase.state !== "RUNNING" && phase.state !== "PAUSED") continue;
      const found = byRef.get(phase.engine.ref);
      if (found === undefined)
        this.#lost(record, "ENGINE_LOST", "The engine does not know its container any more.");
      else if (found.state === "ended")
        this.#ended(record, found.end ?? { exitCode: -1, outOfMemory: false });
    }
  }

  #find(name: SandboxName): SandboxRecord {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record === undefined) {
      throw new BerthError("SANDBOX_NOT_FOUND", `There is no sandbox ${JSON.stringify(name.sandboxId)}.`, {
        metadata: { sandbox_id: name.sandboxId },
      });
    }
    assertGeneration(record, name);
    return record;
  }

  #findAlive(name: SandboxName): SandboxRecord {
    const record = this.#find(name);
    const { state } = record.phase;
    if (state !== "RUNNING" && state !== "PAUSED") throw notRunning(record);
    return record;
  }

  #view(record: SandboxRecord): SandboxView {
    return record.view(this.#engine.name, this.#monitor.info.isolation);
  }

  #assertOpen(): void {
    if (this.#shutdown !== undefined) throw new BerthError("SHUTTING_DOWN", "The server is shutting down.");
  }

  /** Sees to it that a sweep happens within `inMs`, and within the cleanup interval at the latest. */
  #armSweep(inMs: number | undefined): void {
    if (this.#shutdown !== undefined) return;
    const delay = Math.max(0, Math.min(inMs ?? Number.POSITIVE_INFINITY, this.#settings.cleanupIntervalMs));
    const at = this.#clock.monotonicMs() + delay;
    if (this.#sweepTimer !== undefined && this.#sweepTimer.at <= at) return;
    this.#sweepTimer?.cancel();
    const cancel = this.#clock.setTimer(delay, () => {
      this.#sweepTimer = undefined;
      this.sweep().finally(() => this.#armNextSweep());
    });
    this.#sweepTimer = { at, cancel };
  }

  #armNextSweep(): void {
    // A timer may come a moment early, and the deadline pass between the sweep and here: then it is due at
    // once. What could not be removed is in DELETING, has no deadline any more and waits for the interval.
    const waiting = this.#registry.live().filter((record) => record.deletion === undefined);
    const coming = waiting.flatMap((record) => record.expiry()?.inMs ?? []);
    this.#armSweep(Math.max(SOONEST_SWEEP_MS, Math.min(Number.POSITIVE_INFINITY, ...coming)));
  }
}

function engineMount(mount: SandboxSpec["mounts"][number], index: number): EngineMount {
  if (mount.source.kind === "host") {
    return { hostPath: mount.source.path, target: mount.target, readOnly: mount.readOnly, giveToUser: false };
  }
  throw new BerthError(
    "UNSUPPORTED",
    `spec.mounts[${index}].workspace_id: this server offers no workspaces.`,
  );
}

function exists({ sandboxId }: SandboxRecord): BerthError {
  return new BerthError(
    "SANDBOX_EXISTS",
    `sandbox_id: a sandbox with the id ${JSON.stringify(sandboxId)} exists. Delete it, or choose another id.`,
    { metadata: { sandbox_id: sandboxId } },
  );
}

function assertGeneration(record: SandboxRecord, name: SandboxName): void {
  if (name.generation === undefined || name.generation === record.generation) return;
  throw new BerthError(
    "SANDBOX_REPLACED",
    `generation: the sandbox is in generation ${record.generation} now, not ${name.generation}: its container was replaced, with an empty disk. Read it again before you go on.`,
    { metadata: { sandbox_id: record.sandboxId, generation: String(record.generation) } },
  );
}

function notRunning(record: SandboxRecord): BerthError {
  const { phase, sandboxId } = record;
  const metadata = { sandbox_id: sandboxId, state: phase.state };
  const advice = {
    CREATING: "It is still being created.",
    PAUSED: "It is paused: resume it first.",
    RUNNING: "It is running.",
    DELETING: "It is being deleted.",
    TERMINATED: phase.state === "TERMINATED" ? `It has ended: ${phase.termination.message}` : "",
  }[phase.state];
  return new BerthError("SANDBOX_NOT_RUNNING", `The sandbox cannot be used. ${advice}`, { metadata });
}

async function inBatches<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await act(item);
  };
  await Promise.all(Array.from({ length: REMOVALS_AT_ONCE }, worker));
}
