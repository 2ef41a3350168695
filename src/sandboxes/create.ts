import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import type { KeyedLock } from "../base/keyed-lock.ts";
import type { EgressManager } from "../egress/manager.ts";
import type { Engine, EngineSandbox, EngineSandboxSpec } from "../engine/port.ts";
import type { RequestProgress } from "../state/request-log.ts";
import { type Capacity, type Place, type Reservation, withShare } from "./capacity.ts";
import type { SandboxDeleter } from "./delete.ts";
import type { EarlyEnds, EndWatch } from "./engine-ends.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import type { ExpirySweeper } from "./expiry-sweeper.ts";
import type { SandboxJournal } from "./journal.ts";
import { leasedOf, type SandboxObserver } from "./lease.ts";
import { exists, type SandboxInit, type SandboxRecord } from "./record.ts";
import { SandboxRegistry } from "./registry.ts";
import type { SandboxSpec } from "./sandbox.ts";
import {
  engineNetwork,
  type MountSources,
  type RequestedSpec,
  resolveSpec,
  type SandboxDefaults,
} from "./spec.ts";
import type { TenantQuotas } from "./tenant-quotas.ts";
import type { Prepared, WarmPool, WarmSandbox } from "./warm-pool.ts";

/** Minimum time between two reports of a pull's progress. */
const PROGRESS_INTERVAL_MS = 500;

/** Options of a create. */
export interface CreateOptions {
  /** Undefined: a new id. */
  readonly sandboxId?: string;
  readonly signal: AbortSignal;
  /** Progress of the request for this sandbox, if the request has an id. */
  readonly progress?: RequestProgress;
  /**
   * Prefers a warm sandbox that is prepared for sessions of this type. If one was used, `taken` gets what was prepared.
   */
  readonly prepared?: { readonly resourceType: string; taken(prepared: Prepared): void };
  /** Called in the transaction that stores the sandbox as CREATING, to store what depends on it. @throws `NO_SPACE` */
  readonly keepWith?: (sandbox: { readonly sandboxId: string; readonly generation: number }) => void;
}

interface Parts {
  readonly defaults: SandboxDefaults;
  readonly engine: Engine;
  readonly monitor: EngineMonitor;
  readonly mounts: MountSources;
  readonly journal: SandboxJournal;
  readonly clock: Clock;
  readonly observer: SandboxObserver;
  readonly egress: EgressManager;
  readonly locks: KeyedLock;
  readonly capacity: Capacity;
  readonly quotas: TenantQuotas;
  readonly registry: SandboxRegistry;
  readonly deleter: SandboxDeleter;
  readonly warmPool: WarmPool;
  readonly earlyEnds: EarlyEnds;
  readonly sweeper: ExpirySweeper;
  readonly newRecord: (init: SandboxInit) => SandboxRecord;
}

/** Creates sandboxes: stores the intention first, then calls the engine, then makes the sandbox available. */
export class SandboxCreator {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Creates a sandbox. On failure or abort only a record of the failure remains. */
  async create(owner: string, asked: RequestedSpec, options: CreateOptions): Promise<SandboxRecord> {
    const made = await this.#madeBefore(owner, options.progress?.subject);
    if (made !== undefined) return made;
    const { defaults, monitor, mounts, registry, warmPool, journal, sweeper, newRecord } = this.#parts;
    throwIfAborted(monitor.lost);
    const spec = resolveSpec(asked, defaults, monitor.info);
    const { sandboxId, signal } = options;
    mounts.check(owner, spec);
    const find = (): SandboxRecord | undefined => {
      const found = sandboxId === undefined ? undefined : registry.get(owner, sandboxId);
      if (found?.live) throw exists(found);
      return found;
    };
    find();
    // May measure the owner's workspaces, so what takes no time is checked first.
    await mounts.admit(owner, spec, signal);
    const reservation = await this.#reserve(owner, spec, AbortSignal.any([signal, monitor.lost]));
    const previous = orRelease(reservation, find);
    const { prepared } = options;
    const warm = (prepared && warmPool.claim(spec, prepared.resourceType)) ?? warmPool.claim(spec);
    const abort = new AbortController();
    const record = newRecord({
      sandboxId: sandboxId ?? warm?.engine.sandboxId ?? newId("sbx"),
      generation: (previous?.generation ?? 0) + 1,
      owner,
      place: journal.nextPlace(),
      spec,
      phase: { state: "CREATING", abort, warmRef: warm?.engine.ref },
      reservation,
    });
    this.#commit(record, warm, options);
    failpoint(warm ? "claim.intended" : "create.intended");
    try {
      await this.#start(record, warm, AbortSignal.any([signal, monitor.lost, abort.signal]));
    } finally {
      // A warm sandbox that could not be adapted is gone, and what was prepared in it too.
      if (warm?.prepared !== undefined) {
        if (record.leased()?.ref === warm.engine.ref) prepared?.taken(warm.prepared);
        else await warm.prepared.cleanup(true);
      }
    }
    sweeper.arm(record.expiry()?.inMs);
    return record;
  }

  /** Reserves a place in the service, and the sandbox's share of its tenant's quotas. */
  async #reserve(owner: string, { resources }: SandboxSpec, signal: AbortSignal): Promise<Place> {
    const { quotas, capacity } = this.#parts;
    const share = quotas.reserveSandbox(owner, resources);
    try {
      return withShare(await capacity.reserve(signal), share);
    } catch (error) {
      share.release();
      throw error;
    }
  }

  /**
   * The sandbox that an interrupted request created; undefined if that create failed. Waits until its remains are gone.
   */
  async #madeBefore(owner: string, subject: string | undefined): Promise<SandboxRecord | undefined> {
    if (subject === undefined) return undefined;
    const [sandboxId, place] = JSON.parse(subject) as [string, number];
    const record = this.#parts.registry.get(owner, sandboxId);
    if (record?.place !== place) return undefined;
    const end = "termination" in record.phase ? record.phase.termination : undefined;
    if (end?.cause !== "CREATE_FAILED") return record;
    await this.#parts.deleter.end(record, { ...end, graceMs: 0 });
    return undefined;
  }

  /** Stores the sandbox as CREATING, before anything is created. @throws `NO_SPACE` */
  #commit(
    record: SandboxRecord,
    warm: WarmSandbox | undefined,
    { progress, keepWith }: Pick<CreateOptions, "progress" | "keepWith">,
  ): void {
    const { journal, registry } = this.#parts;
    try {
      journal.commit(record, { type: "CREATING" }, () => {
        progress?.begin(JSON.stringify([record.sandboxId, record.place]));
        keepWith?.(record);
      });
    } catch (error) {
      record.reservation.release();
      warm?.giveBack();
      throw error;
    }
    registry.add(record);
  }

  async #start(record: SandboxRecord, warm: WarmSandbox | undefined, signal: AbortSignal): Promise<void> {
    const { locks, deleter, clock, earlyEnds } = this.#parts;
    const { owner, sandboxId } = record;
    // Starts in the same tick as the claim, from which on the pool no longer notices the warm sandbox's end.
    using ends = earlyEnds.watch(sandboxId, warm?.engine.sandboxId ?? sandboxId);
    try {
      await locks.run(SandboxRegistry.key(owner, sandboxId), () => this.#make(record, warm, ends, signal));
    } catch (error) {
      const message =
        error instanceof BerthError ? error.message : "An unexpected error; the server's log has it.";
      deleter.finish(record, { cause: "CREATE_FAILED", message, timeMs: clock.wallMs() });
      throw error;
    }
  }

  /** Makes the sandbox ready, from the warm sandbox if possible. On failure or abort nothing is left. */
  async #make(
    record: SandboxRecord,
    warm: WarmSandbox | undefined,
    ends: EndWatch,
    signal: AbortSignal,
  ): Promise<void> {
    const adapted = warm && (await this.#adapt(warm, record, ends, signal));
    const engine = adapted ?? (await this.#makeCold(record, signal));
    try {
      throwIfAborted(signal);
      await this.#parts.egress.open({ ref: engine.ref, owner: record.owner, spec: record.spec }, signal);
      failpoint(warm ? "claim.made" : "create.made");
      const ended = ends.errorOf(engine.ref);
      if (ended !== undefined) throw ended;
    } catch (error) {
      this.#parts.observer.ending(leasedOf(engine, record.spec));
      await this.#parts.engine.remove(engine.ref);
      throw error;
    }
    this.#becomeReady(record, engine);
    failpoint(warm ? "claim.ready" : "create.ready");
  }

  async #makeCold(record: SandboxRecord, signal: AbortSignal): Promise<EngineSandbox> {
    throwIfAborted(signal);
    const { engine, mounts, clock, journal, observer } = this.#parts;
    const { spec, sandboxId, generation, owner } = record;
    const wanted: EngineSandboxSpec = {
      ...{ ...spec, sandboxId, generation, owner, network: engineNetwork(spec) },
      mounts: await mounts.resolve(owner, spec),
      ...(observer.firstShell && { firstShell: observer.firstShell }),
    };
    let reportedAt = Number.NEGATIVE_INFINITY;
    await engine.ensureImage(spec.image, {
      sandbox: wanted,
      signal,
      onProgress: (progress) => {
        const now = clock.monotonicMs();
        if (now - reportedAt < PROGRESS_INTERVAL_MS && progress.layersDone < progress.layersTotal) return;
        reportedAt = now;
        journal.emit(record, { type: "IMAGE_PULL", image: spec.image, progress });
      },
    });
    return engine.create(wanted, signal);
  }

  /**
   * Gives a warm sandbox the requested mounts and limits. If that fails, the warm sandbox is removed, and the result is
   * undefined if a new sandbox may still work.
   */
  async #adapt(
    { engine: warm, resources }: WarmSandbox,
    { spec, owner }: SandboxRecord,
    ends: EndWatch,
    signal: AbortSignal,
  ): Promise<EngineSandbox | undefined> {
    const { engine, mounts, observer } = this.#parts;
    try {
      if (spec.mounts.length > 0) await engine.mount(warm.ref, await mounts.resolve(owner, spec), signal);
      if (!isDeepStrictEqual(resources, spec.resources)) {
        await engine.setResources(warm.ref, spec.resources, signal);
      }
      const ended = ends.errorOf(warm.ref);
      if (ended !== undefined) throw ended;
      return warm;
    } catch (error) {
      observer.ending(leasedOf(warm, spec));
      await engine.remove(warm.ref);
      const isGone = ends.errorOf(warm.ref) !== undefined || hasReason(error, "SANDBOX_TERMINATED");
      if (isGone || hasReason(error, "UNSUPPORTED")) return undefined;
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

/** Calls `look`; releases the reservation if that throws. */
function orRelease<T>(reservation: Reservation, look: () => T): T {
  try {
    return look();
  } catch (error) {
    reservation.release();
    throw error;
  }
}
