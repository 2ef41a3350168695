import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";
import type { KeyedLock } from "../base/keyed-lock.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineEndEvent, EngineEvent, EngineSandbox } from "../engine/port.ts";
import type { ServiceTime } from "../state/service-time.ts";
import { type Capacity, NO_PLACE, type Place, withShare } from "./capacity.ts";
import type { SandboxDeleter } from "./delete.ts";
import { type EarlyEnds, endOf } from "./engine-ends.ts";
import type { EngineFollower } from "./engine-monitor.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import type { Phase, SandboxInit, SandboxRecord } from "./record.ts";
import { SandboxRegistry } from "./registry.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { Termination, TerminationCause } from "./sandbox.ts";
import type { FoundSandbox } from "./store.ts";
import type { TenantQuotas } from "./tenant-quotas.ts";
import type { WarmPool } from "./warm-pool.ts";

interface Parts {
  readonly engine: Engine;
  readonly journal: SandboxJournal;
  /** See {@link SandboxManager}. */
  readonly locks: KeyedLock;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: SandboxObserver;
  readonly capacity: Capacity;
  readonly quotas: TenantQuotas;
  readonly registry: SandboxRegistry;
  readonly deleter: SandboxDeleter;
  readonly warmPool: WarmPool;
  readonly retries: RemovalRetries;
  readonly earlyEnds: EarlyEnds;
  readonly newRecord: (init: SandboxInit) => SandboxRecord;
}

type LivePhase = Extract<Phase, { state: "RUNNING" | "PAUSED" }>;

/** How long the engine may take to answer while the lock of a sandbox is held, in milliseconds. */
const ASK_MS = 10_000;

/**
 * Compares the store with the engine, at start, every minute and after a lost connection. It recovers live sandboxes,
 * ends those that are gone, with the cause, and removes containers of this instance that belong to no sandbox. In
 * between, the engine's events report what ended, and what was paused or resumed without Berth.
 */
export class Reconciler implements EngineFollower {
  readonly #parts: Parts;
  /** Refs of orphans that are being removed. */
  readonly #removing = new Set<string>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Recovers the sandboxes of an earlier run of the service. When it returns, they are registered and the live ones can
   * be used; removals are in progress.
   * @throws `ENGINE_UNAVAILABLE`
   */
  async recover(): Promise<void> {
    const { engine, journal, registry } = this.#parts;
    const records = journal.load().map((sandbox) => this.#load(sandbox));
    if (records.length === 0) return;
    for (const record of records) registry.add(record);
    const endOf = ({ phase }: SandboxRecord): number => (phase.state === "TERMINATED" ? phase.endedAt : 0);
    const ended = records.filter(({ live }) => !live).sort((a, b) => endOf(a) - endOf(b));
    for (const record of ended) registry.retire(record);
    const present = await engine.list();
    const byRef = new Map(present.map((sandbox) => [sandbox.ref, sandbox]));
    for (const record of records) this.#settle(record, present, byRef);
  }

  onEvent(event: EngineEvent): void {
    const { registry, warmPool, earlyEnds } = this.#parts;
    const record = registry.byRef(event.ref);
    const isEnd = event.type === "ended" || event.type === "removed";
    if (record === undefined) {
      warmPool.lost(event.ref);
      if (isEnd) earlyEnds.onEvent(event);
    } else if (isEnd) this.#ended(record, event);
    else this.#reported(record, event.type === "paused" ? "PAUSED" : "RUNNING");
  }

  beginSync(unseen: boolean): (present: readonly EngineSandbox[]) => void {
    const { registry, warmPool } = this.#parts;
    const known = [...registry.byRefs().keys(), ...warmPool.refs()];
    return (present) => {
      const byRef = new Map(present.map((sandbox) => [sandbox.ref, sandbox]));
      const records = registry.byRefs();
      for (const ref of known) {
        const record = records.get(ref);
        const found = byRef.get(ref);
        if (record !== undefined) this.#compare(record, ref, found, unseen);
        else if (found?.state !== "running") warmPool.lost(ref);
      }
      this.#removeOrphans(present);
    };
  }

  /** See {@link SandboxManager.giveUp}. */
  giveUp(ref: string, why: string, aloneForMs: number): boolean {
    const record = this.#parts.registry.byRef(ref);
    if (record === undefined || record.leases.aloneForMs < aloneForMs) return false;
    this.#parts.logger.warn({ sandboxId: record.sandboxId }, `a sandbox is given up: ${why}`);
    this.#lost(record, "UNCONTROLLABLE", why);
    return true;
  }

  #load(stored: FoundSandbox): SandboxRecord {
    const { time, newRecord } = this.#parts;
    const { createTimeMs, usedTimeMs } = stored;
    return newRecord({
      ...stored,
      phase: this.#phaseOf(stored),
      times: {
        createTimeMs,
        usedTimeMs,
        createdAt: time.toMonotonic(stored.createdAt),
        usedAt: time.toMonotonic(stored.usedAt),
      },
      reservation: this.#placeOf(stored),
    });
  }

  #placeOf({ owner, spec, phase }: FoundSandbox): Place {
    if (phase.state === "TERMINATED") return NO_PLACE;
    const { capacity, quotas } = this.#parts;
    return withShare(capacity.recover(), quotas.recoverSandbox(owner, spec().resources));
  }

  #phaseOf({ phase }: FoundSandbox): Phase {
    switch (phase.state) {
      case "CREATING":
        return { state: "CREATING", abort: new AbortController(), warmRef: undefined };
      case "TERMINATED":
        return { ...phase, endedAt: this.#parts.time.toMonotonic(phase.endedAt) };
      default:
        return phase;
    }
  }

  /** Brings a sandbox of an earlier run of the service to the state that the engine reports. */
  #settle(
    record: SandboxRecord,
    present: readonly EngineSandbox[],
    byRef: ReadonlyMap<string, EngineSandbox>,
  ): void {
    const { phase } = record;
    switch (phase.state) {
      case "CREATING":
        this.#failCreate(record, present);
        break;
      case "RUNNING":
      case "PAUSED":
        this.#recoverLive(record, phase, byRef.get(phase.engine.ref));
        break;
      case "DELETING":
        this.#end(record, phase.termination);
        break;
      case "TERMINATED":
    }
  }

  #recoverLive(record: SandboxRecord, phase: LivePhase, found: EngineSandbox | undefined): void {
    const { observer, logger } = this.#parts;
    if (found === undefined || found.state === "ended") {
      this.#compare(record, phase.engine.ref, found, true);
      return;
    }
    const state = stateOf(found);
    this.#adopt(record, phase, state);
    const sandbox = record.leased();
    if (sandbox !== undefined) observer.ready(sandbox);
    logger.info({ sandboxId: record.sandboxId, ref: found.ref, state }, "recovered a sandbox");
  }

  #adopt(record: SandboxRecord, { state: before, engine }: LivePhase, state: LivePhase["state"]): void {
    if (state === before) return;
    record.phase = { state, engine };
    this.#parts.journal.commitEventually(record, { type: state === "PAUSED" ? "PAUSED" : "RESUMED" });
  }

  /**
   * Adopts the state of a sandbox that was paused or resumed without Berth. The report may be about a call of Berth, so
   * this asks the engine once no such call is in progress.
   */
  #reported(record: SandboxRecord, state: LivePhase["state"]): void {
    const { locks, engine, logger } = this.#parts;
    const { owner, sandboxId } = record;
    const adopted = locks.run(SandboxRegistry.key(owner, sandboxId), async () => {
      const { phase } = record;
      // Not before: an earlier report may be about to change it.
      if (!isLive(phase) || phase.state === state) return;
      const isPaused = await engine.isPaused(phase.engine.ref, AbortSignal.timeout(ASK_MS));
      if (record.phase !== phase || isPaused !== (state === "PAUSED")) return;
      this.#adopt(record, phase, state);
      logger.info({ sandboxId, state }, "a sandbox was paused or resumed outside Berth");
    });
    adopted.catch((err: unknown) => logger.warn({ err, sandboxId }, "the state of a sandbox is unknown"));
  }

  /** Fails an interrupted create. Nobody knows how far it got, so everything that exists of it is removed. */
  #failCreate(record: SandboxRecord, present: readonly EngineSandbox[]): void {
    const { deleter, clock } = this.#parts;
    const message = "The service ended while it was being created.";
    const termination: Termination = { cause: "CREATE_FAILED", message, timeMs: clock.wallMs() };
    const id = idOf(record);
    const engine = present.find((sandbox) => idOf(sandbox) === id);
    if (engine === undefined) {
      deleter.finish(record, termination);
    } else {
      record.phase = { state: "DELETING", engine, termination };
      this.#end(record, termination);
    }
  }

  /**
   * Compares what was known before the engine was asked with its answer. If no events were missed, a missing sandbox
   * was removed, and the event for it is still on its way.
   */
  #compare(record: SandboxRecord, ref: string, found: EngineSandbox | undefined, unseen: boolean): void {
    if (found === undefined) {
      if (unseen) this.#lost(record, "ENGINE_LOST", "The engine does not know its container any more.");
      else this.#ended(record, { type: "removed", ref, sandboxId: record.sandboxId });
    } else if (found.state === "ended") {
      const { sandboxId, end = { exitCode: -1, outOfMemory: false } } = found;
      this.#ended(record, { type: "ended", ref, sandboxId, end });
    } else this.#reported(record, stateOf(found));
  }

  #ended(record: SandboxRecord, event: EngineEndEvent): void {
    const { cause, message, facts } = endOf(event);
    this.#lost(record, cause, message, facts);
  }

  #lost(
    record: SandboxRecord,
    cause: TerminationCause,
    message: string,
    facts: Readonly<Record<string, string>> = {},
  ): void {
    const { state } = record.phase;
    if (state !== "RUNNING" && state !== "PAUSED") return;
    const ended = new BerthError("SANDBOX_TERMINATED", `The sandbox ended: ${message}`, {
      metadata: { cause, ...facts },
    });
    record.leases.abortAll(ended);
    this.#end(record, { cause, message });
  }

  #end(record: SandboxRecord, { cause, message }: Pick<Termination, "cause" | "message">): void {
    // If this fails, the deleter retries.
    this.#parts.deleter.end(record, { cause, message, graceMs: 0 }).catch(() => {});
  }

  /**
   * Removes containers that carry this instance's label and belong to no sandbox: those of interrupted creates of an
   * earlier run of the service, those that the engine finished after the caller gave up, and warm sandboxes of an
   * earlier run.
   */
  #removeOrphans(present: readonly EngineSandbox[]): void {
    const { registry, warmPool, retries } = this.#parts;
    const live = registry.live();
    const refs = new Set(live.flatMap(({ phase }) => refOf(phase) ?? []));
    const creating = new Set(live.filter(({ phase }) => phase.state === "CREATING").map(idOf));
    for (const found of present) {
      const known = refs.has(found.ref) || creating.has(idOf(found)) || warmPool.owns(found);
      if (!known && !this.#removing.has(found.ref) && !retries.has(found.ref)) void this.#removeOrphan(found);
    }
  }

  async #removeOrphan(orphan: EngineSandbox): Promise<void> {
    const { engine, retries, logger } = this.#parts;
    const { ref, sandboxId, generation } = orphan;
    this.#removing.add(ref);
    try {
      await engine.remove(ref);
      retries.gone(ref);
      logger.info({ ref, sandboxId, generation }, "removed a sandbox that belonged to nothing");
    } catch (error) {
      retries.failed(ref, sandboxId, error, () => this.#removeOrphan(orphan));
    } finally {
      this.#removing.delete(ref);
    }
  }
}

function isLive(phase: Phase): phase is LivePhase {
  return phase.state === "RUNNING" || phase.state === "PAUSED";
}

function stateOf({ state }: EngineSandbox): LivePhase["state"] {
  return state === "paused" ? "PAUSED" : "RUNNING";
}

/** The engine's ref of a sandbox, if it is known. */
function refOf(phase: Phase): string | undefined {
  if ("engine" in phase) return phase.engine.ref;
  return phase.state === "CREATING" ? phase.warmRef : undefined;
}

function idOf(sandbox: {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation: number;
}): string {
  return compositeKey(sandbox.owner, sandbox.sandboxId, sandbox.generation);
}
