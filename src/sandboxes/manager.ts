import { forEachConcurrently, rest, within } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, hasReason, throwIfAborted } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { Logger } from "../base/logger.ts";
import { type Slice, type Sliced, WHOLE } from "../base/ordered-index.ts";
import type { EgressManager } from "../egress/manager.ts";
import type { Engine, WaitingSandbox } from "../engine/port.ts";
import { NO_PROGRESS, type RequestProgress } from "../state/request-log.ts";
import type { ServiceTime } from "../state/service-time.ts";
import { Capacity } from "./capacity.ts";
import { type CreateOptions, SandboxCreator } from "./create.ts";
import { SandboxDeleter } from "./delete.ts";
import { EarlyEnds } from "./engine-ends.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import { ExpirySweeper } from "./expiry-sweeper.ts";
import type { SandboxJournal } from "./journal.ts";
import type { Lease, LeaseOptions, SandboxObserver } from "./lease.ts";
import {
  assertGeneration,
  DELETED,
  notFound,
  notRunning,
  type SandboxInit,
  SandboxRecord,
} from "./record.ts";
import { Reconciler } from "./recover.ts";
import { SandboxRegistry } from "./registry.ts";
import { RemovalRetries } from "./removal-retries.ts";
import type { ResourceUsage, SandboxSpec, SandboxState, SandboxView, WorkspaceEventBody } from "./sandbox.ts";
import { fitSpec, type MountSources, type RequestedSpec, type SandboxDefaults } from "./spec.ts";
import { TenantQuotas } from "./tenant-quotas.ts";
import { UsageMeter } from "./usage-meter.ts";
import {
  POOL_OWNER,
  type PreparedPool,
  WarmPool,
  type WarmPoolStatus,
  type WarmPoolTarget,
} from "./warm-pool.ts";

/** Settings of the manager. */
export interface SandboxManagerSettings {
  readonly maxSandboxes: number;
  readonly cleanupIntervalMs: number;
  /** Default grace of a delete for active operations. */
  readonly deleteGraceMs: number;
  readonly defaults: SandboxDefaults;
  /** Sandboxes to keep ready to be claimed. */
  readonly warmPools: readonly WarmPoolTarget[];
}

interface SandboxManagerParts {
  readonly engine: Engine;
  readonly monitor: EngineMonitor;
  readonly journal: SandboxJournal;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: SandboxObserver;
  readonly egress: EgressManager;
  readonly mounts: MountSources;
  /** Default: no tenant has a quota. */
  readonly quotas?: TenantQuotas;
}

/** How many sandboxes that wait to start the statistics list. */
const MAX_WAITING = 100;
/** How long it may take until the end of a sandbox is reported that the engine found gone. */
const END_MS = 1_000;

/** The result of {@link SandboxManager.stats}. */
interface SandboxStats {
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
  /** Number of sandboxes that wait to start in the engine. */
  readonly waitingSandboxes: number;
  /** The first of these, longest wait first. */
  readonly waiting: readonly (Omit<WaitingSandbox, "owner"> & { readonly warmPool: boolean })[];
}

/** Names a sandbox by its owner and id, and by its generation if the caller knows it. */
export interface SandboxName {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation?: number;
}

/**
 * Creates, finds, leases, expires and removes sandboxes.
 *
 * Lifecycle changes of a sandbox happen under the lock of its id. Operations take a lease ({@link acquire}) and run
 * concurrently. Every method takes the owner; other owners' sandboxes are `SANDBOX_NOT_FOUND`.
 */
export class SandboxManager {
  readonly #settings: SandboxManagerSettings;
  readonly #engine: Engine;
  readonly #monitor: EngineMonitor;
  readonly #journal: SandboxJournal;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #locks = new KeyedLock();
  readonly #retries: RemovalRetries;
  readonly #capacity: Capacity;
  readonly #registry: SandboxRegistry;
  readonly #deleter: SandboxDeleter;
  readonly #warmPool: WarmPool;
  readonly #creator: SandboxCreator;
  readonly #sweeper: ExpirySweeper;
  readonly #reconciler: Reconciler;
  readonly #meter: UsageMeter;
  #shutdown: Promise<string[]> | undefined;

  constructor(settings: SandboxManagerSettings, parts: SandboxManagerParts) {
    const { engine, monitor, journal, clock, logger } = parts;
    const { defaults } = settings;
    this.#settings = settings;
    this.#engine = engine;
    this.#monitor = monitor;
    this.#journal = journal;
    this.#clock = clock;
    this.#logger = logger;
    const capacity = new Capacity(settings.maxSandboxes, clock);
    const registry = new SandboxRegistry(clock, (record) => journal.forget(record));
    const retries = new RemovalRetries(parts);
    const quotas = parts.quotas ?? new TenantQuotas(clock);
    const earlyEnds = new EarlyEnds();
    const shared = { ...parts, quotas, defaults, locks: this.#locks, capacity, registry, retries, earlyEnds };
    const deleter = new SandboxDeleter(shared);
    const warmPool = new WarmPool(settings.warmPools, shared);
    const sweeper = new ExpirySweeper(registry, deleter, settings.cleanupIntervalMs, clock);
    this.#capacity = capacity;
    this.#registry = registry;
    this.#retries = retries;
    this.#deleter = deleter;
    this.#warmPool = warmPool;
    this.#meter = new UsageMeter(engine, clock);
    this.#sweeper = sweeper;
    // The same parts for all: there may be ten thousand records.
    const ofRecords = {
      clock,
      onUse: (record: SandboxRecord) => journal.used(record),
      onIdle: (record: SandboxRecord) => sweeper.arm(record.expiry()?.inMs),
    };
    const newRecord = (init: SandboxInit) => new SandboxRecord(init, ofRecords);
    this.#creator = new SandboxCreator({ ...shared, deleter, warmPool, sweeper, newRecord });
    this.#reconciler = new Reconciler({ ...shared, deleter, warmPool, newRecord });
  }

  /**
   * Recovers the sandboxes of an earlier run of the service. Call it before {@link start}. @throws `ENGINE_UNAVAILABLE`
   */
  async recover(): Promise<void> {
    await this.#reconciler.recover();
  }

  /** Keeps prepared sandboxes ready. Call it before {@link start}. */
  keepPrepared(pool: PreparedPool): void {
    this.#warmPool.add(pool);
  }

  /** Starts sweeping expired sandboxes, filling the warm pools and following the engine. */
  start(): void {
    this.#monitor.follow(this.#reconciler);
    this.#warmPool.start();
    this.#sweeper.arm(0);
    this.#monitor.onAvailabilityChange(() => {
      if (!this.#monitor.available) return;
      // Retry removals at once that failed while the engine was unavailable.
      this.#retries.hurry();
      void this.#sweeper.sweep();
    });
  }

  /**
   * Creates a sandbox that is ready to run commands. On failure or abort nothing is left.
   * @throws `SHUTTING_DOWN`, `NO_SPACE`, `SANDBOX_EXISTS`, `SANDBOX_LIMIT`, `TENANT_QUOTA`, `INVALID_ARGUMENT`,
   *   `IMAGE_UNAVAILABLE`, `SANDBOX_START_FAILED`, `UNSUPPORTED`, `NOT_ALLOWED`, `WORKSPACE_NOT_FOUND`,
   *   `WORKSPACE_IN_USE`, `WORKSPACE_BROKEN`, `ENGINE_UNAVAILABLE`.
   */
  async create(owner: string, asked: RequestedSpec, options: CreateOptions): Promise<SandboxView> {
    this.#assertOpen();
    return this.#view(await this.#creator.create(owner, asked, options));
  }

  get(name: SandboxName): SandboxView {
    return this.#view(this.#find(name));
  }

  /** Lists an owner's sandboxes that pass the filter, newest first. */
  list(
    owner: string,
    filter: { readonly labels: Readonly<Record<string, string>>; readonly states: ReadonlySet<SandboxState> },
    slice: Slice = WHOLE,
  ): Sliced<SandboxView> {
    const { states } = filter;
    const labels = Object.entries(filter.labels);
    const { items, next } = this.#registry.list(
      owner,
      states.has("TERMINATED"),
      slice,
      (record) =>
        states.has(record.phase.state) && labels.every(([key, value]) => record.labels[key] === value),
    );
    return { items: items.map((record) => this.#view(record)), next };
  }

  /** Changes labels or deadlines. Omitted fields stay unchanged. */
  update(
    name: SandboxName,
    change: Partial<Pick<SandboxSpec, "labels" | "idleTimeoutMs" | "maxLifetimeMs">>,
  ): SandboxView {
    const record = this.#findAlive(name);
    const { spec } = record;
    record.spec = { ...spec, ...change };
    try {
      this.#journal.commit(record, { type: "UPDATED" });
    } catch (error) {
      record.spec = spec;
      throw error;
    }
    this.#sweeper.arm(record.expiry()?.inMs);
    return this.#view(record);
  }

  /** Adapts a spec of Berth's own to what the engine supports. */
  fit(wanted: RequestedSpec): RequestedSpec {
    return fitSpec(wanted, this.#monitor.info);
  }

  /** Restarts the sandbox's idle time. */
  keepAlive(name: SandboxName): SandboxView {
    const record = this.#findAlive(name);
    record.touch();
    return this.#view(record);
  }

  /**
   * What a running or paused sandbox uses now. Takes no lease, because that would keep the sandbox alive.
   * @throws `SANDBOX_NOT_FOUND`, `SANDBOX_NOT_RUNNING`, `SANDBOX_REPLACED`, `SANDBOX_TERMINATED`,
   *   `TOO_MANY_OPERATIONS`, `ENGINE_UNAVAILABLE`.
   */
  async usage(name: SandboxName, signal: AbortSignal): Promise<ResourceUsage> {
    const record = this.#find(name);
    const { phase } = record;
    if (phase.state !== "RUNNING" && phase.state !== "PAUSED") throw notRunning(record);
    const { capabilities } = this.#monitor.info;
    const used = await this.#meter
      .measure(phase.engine.ref, this.#monitor.lost, signal)
      .catch((error: unknown) => this.#failed(record, error));
    const { memoryBytes, cpuMillis, pidsLimit } = record.spec.resources;
    return {
      memoryBytes: used.memoryBytes,
      memoryLimitBytes: capabilities.memoryLimit ? memoryBytes : undefined,
      cpuNanos: used.cpuNanos,
      cpuLimitMillis: capabilities.cpuLimit ? cpuMillis : undefined,
      processes: used.pids,
      processLimit: capabilities.pidsLimit ? pidsLimit : undefined,
      measureTimeMs: used.measureTimeMs,
    };
  }

  /** Emits an event that does not change the sandbox. Does nothing for an ended sandbox. */
  emit(name: SandboxName, body: WorkspaceEventBody): void {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record?.live) this.#journal.emit(record, body);
  }

  /** Freezes every process. Idempotent. */
  async pause(name: SandboxName, signal: AbortSignal): Promise<SandboxView> {
    if (!this.#monitor.info.capabilities.pause) {
      throw new BerthError("UNSUPPORTED", `The engine ${this.#engine.name} cannot pause sandboxes.`);
    }
    return this.#change(name, "PAUSED", (ref) => this.#engine.pause(ref, this.#orLost(signal)));
  }

  /** Resumes frozen processes, also if the sandbox was paused without Berth. Idempotent. */
  async resume(name: SandboxName, signal: AbortSignal): Promise<SandboxView> {
    return this.#change(name, "RUNNING", async (ref) => {
      if (!this.#monitor.info.capabilities.pause) return;
      await this.#engine.resume(ref, this.#orLost(signal));
    });
  }

  /**
   * Ends a sandbox. Returns when it is gone, or at once for an unknown or ended one. Active operations may continue
   * during the grace; then their leases are aborted with `SANDBOX_DELETED`. A deletion continues when its caller
   * leaves.
   * @param message why, as a sentence. Default: because its owner wants that.
   * @param progress of the request to delete it, which does not end a later sandbox with the same id.
   */
  async delete(
    name: SandboxName,
    graceMs: number = this.#settings.deleteGraceMs,
    message: string = DELETED,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<void> {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record === undefined || !record.live) return;
    const { subject = String(record.place) } = progress;
    if (subject !== String(record.place)) return;
    assertGeneration(record, name);
    try {
      progress.begin(subject);
    } catch {
      // A sandbox ends even if nothing can be stored.
    }
    await this.#deleter.end(record, { cause: "DELETED", message, graceMs });
  }

  /**
   * Ends a sandbox at once because code in it keeps Berth from ending or starting processes. Returns whether it is
   * being ended, which is impossible while the engine is unavailable.
   * @param aloneForMs end it only if for at least this long there was no more than one active operation in it. Default:
   * always.
   */
  giveUp(ref: string, why: string, aloneForMs = 0): boolean {
    return this.#monitor.available && this.#reconciler.giveUp(ref, why, aloneForMs);
  }

  /**
   * Takes a lease, for an operation in a sandbox.
   * @param options `paused`: whether to accept a paused sandbox, for a holder that only waits. Default false.
   * @throws `SANDBOX_NOT_FOUND`, `SANDBOX_NOT_RUNNING`, `SANDBOX_REPLACED`, `SHUTTING_DOWN`, `ENGINE_UNAVAILABLE`.
   */
  acquire(name: SandboxName, options: LeaseOptions & { readonly paused?: boolean } = {}): Lease {
    this.#assertOpen();
    const record = this.#find(name);
    throwIfAborted(this.#monitor.lost);
    const sandbox = record.leased();
    const { state } = record.phase;
    const usable = state === "RUNNING" || (options.paused === true && state === "PAUSED");
    if (!usable || sandbox === undefined) throw notRunning(record);
    return record.leases.take(sandbox, options);
  }

  /** The lease of an operation that an earlier run of the service started; undefined if the sandbox has ended. */
  recoverLease(name: SandboxName): Lease | undefined {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record === undefined || record.generation !== name.generation) return undefined;
    const { state } = record.phase;
    const sandbox = state === "RUNNING" || state === "PAUSED" ? record.leased() : undefined;
    return sandbox && record.leases.take(sandbox);
  }

  /** How many sandboxes there are, of all owners, those being made and removed included, and how many there may be. */
  get places(): { readonly taken: number; readonly limit: number } {
    const { taken, limit } = this.#capacity;
    return { taken, limit };
  }

  /** Number of sandboxes, of all owners, that could not be removed so far. Berth keeps retrying. */
  get stuckRemovals(): number {
    return this.#retries.count;
  }

  /** @param whole whether to count the sandboxes of all owners, instead of only this owner's. */
  stats(owner: string, whole = true): SandboxStats {
    const own = this.#registry.liveOf(owner);
    const live = whole ? this.#registry.live() : own;
    return {
      totalSandboxes: whole ? this.#capacity.taken : own.length,
      activeOperations: live.reduce((sum, record) => sum + record.leases.count, 0),
      maxSandboxes: this.#capacity.limit,
      idleTimeoutMs: this.#settings.defaults.idleTimeoutMs,
      cleanupIntervalMs: this.#settings.cleanupIntervalMs,
      isShuttingDown: this.#shutdown !== undefined,
      warmPools: this.#warmPool.status(),
      sandboxes: own.map((record) => ({
        sandboxId: record.sandboxId,
        lastUsedMs: record.lastUsedTimeMs,
        isActive: record.leases.count > 0,
      })),
      ...this.#waiting(owner, whole),
    };
  }

  #waiting(owner: string, whole: boolean): Pick<SandboxStats, "waiting" | "waitingSandboxes"> {
    const seen = this.#engine.figures().waiting.filter((one) => whole || one.owner === owner);
    const first = seen.sort((one, other) => one.sinceMs - other.sinceMs).slice(0, MAX_WAITING);
    const waiting = first.map(({ owner: whose, sandboxId, ...rest }) => ({
      ...rest,
      // Do not reveal other tenants' ids.
      sandboxId: whose === owner ? sandboxId : "",
      warmPool: whose === POOL_OWNER,
    }));
    return { waitingSandboxes: seen.length, waiting };
  }

  /**
   * Refuses new work and stops the sweep. Then, unless `leave` is set, ends every sandbox. Returns at the latest after
   * `timeoutMs`, with the ids of the sandboxes that are left. Later calls get the result of the first.
   */
  shutdown(options: { readonly leave: boolean; readonly timeoutMs: number }): Promise<string[]> {
    this.#shutdown ??= this.#runShutdown(options);
    return this.#shutdown;
  }

  async #runShutdown(options: { readonly leave: boolean; readonly timeoutMs: number }): Promise<string[]> {
    this.#sweeper.stop();
    const stopping = new BerthError("SHUTTING_DOWN", "The server is shutting down.");
    this.#capacity.close(stopping);
    for (const { phase } of this.#registry.live())
      if (phase.state === "CREATING") phase.abort.abort(stopping);
    const gone = Promise.all([
      this.#warmPool.stop(),
      forEachConcurrently(options.leave ? [] : this.#registry.live(), (record) =>
        this.#endAtShutdown(record),
      ),
    ]);
    await within(gone, options.timeoutMs, this.#clock);
    this.#retries.stop();
    this.#monitor.stop();
    return this.#registry.live().map((record) => record.sandboxId);
  }

  async #endAtShutdown(record: SandboxRecord): Promise<void> {
    try {
      await this.#deleter.end(record, {
        cause: "SERVER_SHUTDOWN",
        message: "The server stopped.",
        graceMs: 0,
      });
    } catch (error) {
      const { sandboxId } = record;
      this.#logger.error({ sandboxId, err: error }, "a sandbox could not be removed at shutdown");
    }
  }

  /** Calls the engine each time, because Berth notices a manual `docker pause` or `docker unpause` only later. */
  async #change(
    name: SandboxName,
    to: "RUNNING" | "PAUSED",
    act: (ref: string) => Promise<void>,
  ): Promise<SandboxView> {
    const found = this.#find(name);
    return this.#locks.run(SandboxRegistry.key(found.owner, found.sandboxId), async () => {
      const record = this.#find(name);
      const { phase } = record;
      if (phase.state !== "RUNNING" && phase.state !== "PAUSED") throw notRunning(record);
      await act(phase.engine.ref).catch((error: unknown) => this.#failed(record, error));
      if (phase.state !== to) {
        record.phase = { state: to, engine: phase.engine };
        record.touch();
        this.#journal.commitEventually(record, { type: to === "PAUSED" ? "PAUSED" : "RESUMED" });
      }
      return this.#view(record);
    });
  }

  /** Throws why the sandbox ended, if the engine found it gone: that is reported soon. Otherwise the given error. */
  async #failed(record: SandboxRecord, error: unknown): Promise<never> {
    if (!hasReason(error, "SANDBOX_TERMINATED")) throw error;
    const { state } = record.phase;
    const sandbox = state === "RUNNING" || state === "PAUSED" ? record.leased() : undefined;
    if (sandbox === undefined) throw notRunning(record);
    using lease = record.leases.take(sandbox, { watches: true });
    await rest(END_MS, lease.signal);
    throw lease.signal.aborted ? abortError(lease.signal) : error;
  }

  #find(name: SandboxName): SandboxRecord {
    const record = this.#registry.get(name.owner, name.sandboxId);
    if (record === undefined) throw notFound(name.sandboxId);
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
    return record.view(this.#engine.name, this.#monitor.info);
  }

  #orLost(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#monitor.lost]);
  }

  #assertOpen(): void {
    if (this.#shutdown !== undefined) throw new BerthError("SHUTTING_DOWN", "The server is shutting down.");
  }
}
