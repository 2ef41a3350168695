import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { newId } from "../base/ids.ts";
import type { KeyedLock } from "../base/keyed-lock.ts";
import type { EngineSandbox } from "../engine/port.ts";
import type { RequestProgress } from "../state/request-log.ts";
import type { Capacity, Reservation } from "./capacity.ts";
import type { SandboxDeleter } from "./deleter.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import { exists } from "./errors.ts";
import type { ExpirySweeper } from "./expiry-sweeper.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import type { SandboxMaker } from "./maker.ts";
import type { MountSources } from "./mount-sources.ts";
import { SandboxRecord } from "./record.ts";
import { SandboxRegistry } from "./registry.ts";
import { type RequestedSpec, resolveSpec, type SandboxDefaults } from "./spec.ts";
import type { WarmPool, WarmSandbox } from "./warm-pool.ts";

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
