import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import type { KeyedLock } from "../base/keyed-lock.ts";
import type { Engine, EngineSandbox } from "../engine/port.ts";
import type { RequestProgress } from "../state/request-log.ts";
import type { Capacity, Reservation } from "./capacity.ts";
import type { SandboxDeleter } from "./delete.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import type { ExpirySweeper } from "./expiry-sweeper.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import { exists, SandboxRecord } from "./record.ts";
import { SandboxRegistry } from "./registry.ts";
import { type MountSources, type RequestedSpec, resolveSpec, type SandboxDefaults } from "./spec.ts";
import { leasedOf, type WarmPool, type WarmSandbox } from "./warm-pool.ts";

/** What a {@link SandboxCreator} is built of. */
export interface SandboxCreatorParts {
  readonly defaults: SandboxDefaults;
  readonly monitor: EngineMonitor;
  readonly mounts: MountSources;
  readonly journal: SandboxJournal;
  readonly clock: Clock;
  readonly observer: SandboxObserver;
  readonly locks: KeyedLock;
  readonly capacity: Capacity;
  readonly registry: SandboxRegistry;
  readonly deleter: SandboxDeleter;
  readonly warmPool: WarmPool;
  readonly maker: SandboxMaker;
  readonly sweeper: ExpirySweeper;
}

/** How a sandbox is asked for. */
export interface CreateOptions {
  /** Undefined: a new one. */
  readonly sandboxId?: string;
  readonly signal: AbortSignal;
  /** Of the request that asks for it, where that has an id. */
  readonly progress?: RequestProgress;
  /** Keeps what depends on the sandbox in the transaction that keeps that it is being made. @throws `NO_SPACE` */
  readonly keepWith?: (sandbox: { readonly sandboxId: string; readonly generation: number }) => void;
}

/** Makes sandboxes: keeps the intention first, then has the engine make it, then lets it be used. */
export class SandboxCreator {
  readonly #parts: SandboxCreatorParts;

  constructor(parts: SandboxCreatorParts) {
    this.#parts = parts;
  }

  /** Makes a sandbox; on failure and on abort nothing is left but the record of that. */
  async create(owner: string, asked: RequestedSpec, options: CreateOptions): Promise<SandboxRecord> {
    const made = await this.#madeBefore(owner, options.progress?.begun);
    if (made !== undefined) return made;
    const { defaults, monitor, mounts, registry, capacity, warmPool, clock, journal, sweeper } = this.#parts;
    throwIfAborted(monitor.lost);
    const spec = resolveSpec(asked, defaults, monitor.info);
    mounts.check(owner, spec);
    const { sandboxId, signal } = options;
    const find = (): SandboxRecord | undefined => {
      const found = sandboxId === undefined ? undefined : registry.get(owner, sandboxId);
      if (found?.live) throw exists(found);
      return found;
    };
    find();
    const reservation = await capacity.reserve(AbortSignal.any([signal, monitor.lost]));
    const previous = orRelease(reservation, find);
    const warm = warmPool.claim(spec);
    const abort = new AbortController();
    const record: SandboxRecord = new SandboxRecord({
      sandboxId: sandboxId ?? warm?.engine.sandboxId ?? newId("sbx"),
      generation: (previous?.generation ?? 0) + 1,
      owner,
      place: journal.nextPlace(),
      spec,
      phase: { state: "CREATING", abort, warmRef: warm?.engine.ref },
      reservation,
      clock,
      onUse: () => journal.used(record),
      onIdle: () => sweeper.arm(record.expiry()?.inMs),
    });
    this.#begin(record, warm, options);
    failpoint(warm ? "claim.intended" : "create.intended");
    await this.#make(record, warm, AbortSignal.any([signal, monitor.lost, abort.signal]));
    sweeper.arm(record.expiry()?.inMs);
    return record;
  }

  /** What an interrupted request had made; undefined where its create came to nothing, and what was left of that is gone. */
  async #madeBefore(owner: string, begun: string | undefined): Promise<SandboxRecord | undefined> {
    if (begun === undefined) return undefined;
    const [sandboxId, generation] = JSON.parse(begun) as [string, number];
    const record = this.#parts.registry.get(owner, sandboxId);
    if (record?.generation !== generation) return undefined;
    const end = "termination" in record.phase ? record.phase.termination : undefined;
    if (end?.cause !== "CREATE_FAILED") return record;
    await this.#parts.deleter.end(record, { ...end, graceMs: 0 });
    return undefined;
  }

  /** Keeps that it is being made, before anything is. @throws `NO_SPACE` */
  #begin(
    record: SandboxRecord,
    warm: WarmSandbox | undefined,
    { progress, keepWith }: Pick<CreateOptions, "progress" | "keepWith">,
  ): void {
    const { journal, warmPool, registry } = this.#parts;
    try {
      journal.commit(record, { type: "CREATING" }, () => {
        progress?.begin(JSON.stringify([record.sandboxId, record.generation]));
        keepWith?.(record);
      });
    } catch (error) {
      record.reservation.release();
      if (warm !== undefined) warmPool.giveBack(warm, record.spec.image);
      throw error;
    }
    registry.add(record);
  }

  async #make(record: SandboxRecord, warm: WarmSandbox | undefined, signal: AbortSignal): Promise<void> {
    const { locks, maker, deleter, clock } = this.#parts;
    try {
      await locks.run(SandboxRegistry.key(record.owner, record.sandboxId), async () => {
        const engine = await maker.make(record, warm, signal);
        failpoint(warm ? "claim.made" : "create.made");
        this.#becomeReady(record, engine);
        failpoint(warm ? "claim.ready" : "create.ready");
      });
    } catch (error) {
      const message =
        error instanceof BerthError ? error.message : "An unexpected error; the server's log has it.";
      deleter.finish(record, { cause: "CREATE_FAILED", message, timeMs: clock.wallMs() });
      throw error;
    }
  }

  #becomeReady(record: SandboxRecord, engine: EngineSandbox): void {
    const { observer, journal } = this.#parts;
    record.phase = { state: "RUNNING", engine };
    record.touch();
    const ready = record.leased();
    if (ready !== undefined) observer.ready(ready);
    journal.commitEventually(record, { type: "RUNNING" });
  }
}

/** What `look` comes to; where it throws, the place is given back. */
function orRelease<T>(reservation: Reservation, look: () => T): T {
  try {
    return look();
  } catch (error) {
    reservation.release();
    throw error;
  }
}

/** Progress of a pull is told at most this often. */
const PROGRESS_INTERVAL_MS = 500;

/** Brings what stands behind a sandbox into being: from a warm one, or from its image. */
export class SandboxMaker {
  readonly #engine: Engine;
  readonly #journal: SandboxJournal;
  readonly #clock: Clock;
  readonly #mounts: MountSources;
  readonly #observer: SandboxObserver;

  constructor(parts: {
    readonly engine: Engine;
    readonly journal: SandboxJournal;
    readonly clock: Clock;
    readonly mounts: MountSources;
    readonly observer: SandboxObserver;
  }) {
    this.#engine = parts.engine;
    this.#journal = parts.journal;
    this.#clock = parts.clock;
    this.#mounts = parts.mounts;
    this.#observer = parts.observer;
  }

  /** Makes it; on failure and on abort nothing is left. */
  async make(
    record: SandboxRecord,
    warm: WarmSandbox | undefined,
    signal: AbortSignal,
  ): Promise<EngineSandbox> {
    const adapted = warm && (await this.#adapt(warm, record, signal));
    const engine = adapted ?? (await this.#makeCold(record, signal));
    if (!signal.aborted) return engine;
    await this.#engine.remove(engine.ref);
    throw abortError(signal);
  }

  async #makeCold(record: SandboxRecord, signal: AbortSignal): Promise<EngineSandbox> {
    throwIfAborted(signal);
    const { spec, sandboxId, generation, owner } = record;
    const mounts = await this.#mounts.resolve(owner, spec);
    let toldAt = Number.NEGATIVE_INFINITY;
    await this.#engine.ensureImage(spec.image, {
      signal,
      onProgress: (progress) => {
        const now = this.#clock.monotonicMs();
        if (now - toldAt < PROGRESS_INTERVAL_MS && progress.layersDone < progress.layersTotal) return;
        toldAt = now;
        this.#journal.emit(record, { type: "IMAGE_PULL", image: spec.image, progress });
      },
    });
    return this.#engine.create({ ...spec, sandboxId, generation, owner, mounts }, signal);
  }

  /**
   * Makes a sandbox that waited into what was asked for. What cannot be made so
   * is removed; undefined where a new one can be what this one could not.
   */
  async #adapt(
    { engine, resources }: WarmSandbox,
    { spec, owner }: SandboxRecord,
    signal: AbortSignal,
  ): Promise<EngineSandbox | undefined> {
    try {
      if (spec.mounts.length > 0) {
        await this.#engine.mount(engine.ref, await this.#mounts.resolve(owner, spec), signal);
      }
      if (!isDeepStrictEqual(resources, spec.resources)) {
        await this.#engine.setResources(engine.ref, spec.resources, signal);
      }
      return engine;
    } catch (error) {
      this.#observer.ending(leasedOf(engine, spec));
      await this.#engine.remove(engine.ref);
      if (spec.mounts.length > 0 && error instanceof BerthError && error.reason === "UNSUPPORTED")
        return undefined;
      throw error;
    }
  }
}
