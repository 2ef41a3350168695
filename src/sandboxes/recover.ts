import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineEvent, EngineSandbox, EngineSandboxEnd } from "../engine/port.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Capacity } from "./capacity.ts";
import type { SandboxDeleter } from "./delete.ts";
import type { EngineFollower } from "./engine-monitor.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import { type Phase, SandboxRecord } from "./record.ts";
import type { SandboxRegistry } from "./registry.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { Termination, TerminationCause } from "./sandbox.ts";
import type { StoredSandbox } from "./store.ts";
import type { WarmPool } from "./warm-pool.ts";

/** What a {@link Reconciler} is built of. */
export interface ReconcilerParts {
  readonly engine: Engine;
  readonly journal: SandboxJournal;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: SandboxObserver;
  readonly capacity: Capacity;
  readonly registry: SandboxRegistry;
  readonly deleter: SandboxDeleter;
  readonly externalExits: ExternalExitWatcher;
  readonly orphans: OrphanReaper;
  /** Called when the last operation on a sandbox has ended. */
  readonly onIdle: (record: SandboxRecord) => void;
}

/**
 * Joins what the store says with what the engine has: at start it takes up
 * what an earlier run left, later it learns what happens without Berth's doing.
 * What lives is adopted, what is gone ends with its cause, what belongs to
 * nothing is removed.
 */
export class Reconciler implements EngineFollower {
  readonly #parts: ReconcilerParts;

  constructor(parts: ReconcilerParts) {
    this.#parts = parts;
  }

  /**
   * Takes up the sandboxes of an earlier run. When it returns they are known
   * and those that live can be used; what has to be removed goes on its way.
   * @throws `ENGINE_UNAVAILABLE`
   */
  async recover(): Promise<void> {
    const { engine, journal, registry } = this.#parts;
    const stored = journal.load();
    if (stored.length === 0) return;
    const endedLast = (sandbox: StoredSandbox): number =>
      sandbox.phase.state === "TERMINATED" ? sandbox.phase.endedAt : Number.POSITIVE_INFINITY;
    const records = stored.map((sandbox) => this.#load(sandbox));
    for (const record of records) registry.add(record);
    const ended = [...stored.keys()].filter((i) => !records[i]?.live);
    ended.sort((a, b) => endedLast(stored[a] as StoredSandbox) - endedLast(stored[b] as StoredSandbox));
    for (const i of ended) registry.retire(records[i] as SandboxRecord);
    const present = await engine.list();
    for (const record of records) this.#settle(record, present);
  }

  onEvent(event: EngineEvent): void {
    this.#parts.externalExits.onEvent(event);
  }

  beginSync(unseen: boolean): (present: readonly EngineSandbox[]) => void {
    const compare = this.#parts.externalExits.beginSync(unseen);
    return (present) => {
      compare(present);
      this.#parts.orphans.reap(present);
    };
  }

  #load(stored: StoredSandbox): SandboxRecord {
    const { time, capacity, clock, journal } = this.#parts;
    const { createTimeMs, usedTimeMs } = stored;
    const record: SandboxRecord = new SandboxRecord({
      ...stored,
      phase: this.#phaseOf(stored),
      times: {
        createTimeMs,
        usedTimeMs,
        createdAt: time.toMonotonic(stored.createdAt),
        usedAt: time.toMonotonic(stored.usedAt),
      },
      reservation: capacity.recover(),
      clock,
      onUse: () => journal.used(record),
      onIdle: () => this.#parts.onIdle(record),
    });
    if (!record.live) record.reservation.release();
    return record;
  }

  #phaseOf({ phase }: StoredSandbox): Phase {
    switch (phase.state) {
      case "CREATING":
        return { state: "CREATING", abort: new AbortController(), warmRef: undefined };
      case "TERMINATED":
        return { ...phase, endedAt: this.#parts.time.toMonotonic(phase.endedAt) };
      default:
        return phase;
    }
  }

  /** Brings a sandbox of an earlier run to where the engine says that it is. */
  #settle(record: SandboxRecord, present: readonly EngineSandbox[]): void {
    const { phase } = record;
    switch (phase.state) {
      case "CREATING":
        this.#giveUpCreate(record, present);
        break;
      case "RUNNING":
      case "PAUSED":
        this.#recoverLive(record, phase, present);
        break;
      case "DELETING":
        this.#end(record, phase.termination);
        break;
      case "TERMINATED":
    }
  }

  #recoverLive(
    record: SandboxRecord,
    phase: Extract<Phase, { state: "RUNNING" | "PAUSED" }>,
    present: readonly EngineSandbox[],
  ): void {
    const { externalExits, journal, observer, logger } = this.#parts;
    const found = present.find(({ ref }) => ref === phase.engine.ref);
    if (found === undefined || found.state === "ended") {
      externalExits.compare(phase.engine.ref, found, true);
      return;
    }
    const state = found.state === "paused" ? "PAUSED" : "RUNNING";
    if (state !== phase.state) {
      record.phase = { state, engine: phase.engine };
      journal.commitEventually(record, { type: state === "PAUSED" ? "PAUSED" : "RESUMED" });
    }
    const sandbox = record.leased();
    if (sandbox !== undefined) observer.ready(sandbox);
    logger.info({ sandboxId: record.sandboxId, ref: found.ref, state }, "adopted a sandbox");
  }

  /** Nobody knows how far its create came: what there is of it goes. */
  #giveUpCreate(record: SandboxRecord, present: readonly EngineSandbox[]): void {
    const { deleter, clock } = this.#parts;
    const message = "The service ended while it was being created.";
    const termination: Termination = { cause: "CREATE_FAILED", message, timeMs: clock.wallMs() };
    const engine = present.find(
      ({ owner, sandboxId, generation }) =>
        owner === record.owner && sandboxId === record.sandboxId && generation === record.generation,
    );
    if (engine === undefined) {
      deleter.finish(record, termination);
    } else {
      record.phase = { state: "DELETING", engine, termination };
      this.#end(record, termination);
    }
  }

  #end(record: SandboxRecord, { cause, message }: Termination): void {
    // Where that fails, the deleter tries again.
    this.#parts.deleter.end(record, { cause, message, graceMs: 0 }).catch(() => {});
  }
}

/** Learns from the engine which sandboxes ended without Berth's doing, and why; takes away what is left of them. */
export class ExternalExitWatcher {
  readonly #registry: SandboxRegistry;
  readonly #deleter: SandboxDeleter;
  readonly #warmPool: WarmPool;
  readonly #logger: Logger;

  constructor(
    registry: SandboxRegistry,
    deleter: SandboxDeleter,
    warmPool: WarmPool,
    { logger }: { readonly logger: Logger },
  ) {
    this.#registry = registry;
    this.#deleter = deleter;
    this.#warmPool = warmPool;
    this.#logger = logger;
  }

  onEvent(event: EngineEvent): void {
    const record = this.#registry.byRef(event.ref);
    if (record === undefined) this.#warmPool.lost(event.ref);
    else if (event.type === "ended") this.#ended(record, event.end);
    else this.#removed(record);
  }

  /** As {@link EngineFollower.beginSync} says. */
  beginSync(unseen: boolean): (present: readonly EngineSandbox[]) => void {
    const live = this.#registry.live().flatMap(({ phase }) => ("engine" in phase ? phase.engine.ref : []));
    const known = [...live, ...this.#warmPool.refs()];
    return (present) => {
      const byRef = new Map(present.map((sandbox) => [sandbox.ref, sandbox]));
      for (const ref of known) this.compare(ref, byRef.get(ref), unseen);
    };
  }

  /**
   * Holds what was known before the engine was asked against what it answered. An engine that was followed all the
   * time forgets no sandbox by itself: one that is gone was removed, and the event that says so is on its way.
   */
  compare(ref: string, found: EngineSandbox | undefined, unseen: boolean): void {
    const record = this.#registry.byRef(ref);
    if (record === undefined) {
      if (found?.state !== "running") this.#warmPool.lost(ref);
    } else if (found === undefined) {
      if (unseen) this.#lost(record, "ENGINE_LOST", "The engine does not know its container any more.");
      else this.#removed(record);
    } else if (found.state === "ended") {
      this.#ended(record, found.end ?? { exitCode: -1, outOfMemory: false });
    }
  }

  /** As {@link SandboxManager.giveUp} says. */
  giveUp(ref: string, why: string, ifAlone: boolean): boolean {
    const record = this.#registry.byRef(ref);
    if (record === undefined || (ifAlone && record.leases.working > 1)) return false;
    this.#logger.warn({ sandboxId: record.sandboxId }, `a sandbox is given up: ${why}`);
    this.#lost(record, "UNCONTROLLABLE", why);
    return true;
  }

  #removed(record: SandboxRecord): void {
    this.#lost(record, "REMOVED_EXTERNALLY", "Its container was removed outside Berth.");
  }

  #ended(record: SandboxRecord, { exitCode, outOfMemory }: EngineSandboxEnd): void {
    if (outOfMemory) {
      this.#lost(record, "OUT_OF_MEMORY", "The kernel killed its main process for want of memory.");
    } else this.#lost(record, "EXITED", `Its main process ended with code ${exitCode}.`);
  }

  #lost(record: SandboxRecord, cause: TerminationCause, message: string): void {
    const { state } = record.phase;
    if (state !== "RUNNING" && state !== "PAUSED") return;
    const ended = new BerthError("SANDBOX_TERMINATED", `The sandbox ended: ${message}`, {
      metadata: { cause },
    });
    record.leases.abortAll(ended);
    // Where that fails, the deleter tries again.
    this.#deleter.end(record, { cause, message, graceMs: 0 }).catch(() => {});
  }
}

/**
 * Removes what carries this instance's label and belongs to nothing: what a
 * create of an earlier run left half made, what the engine finished after
 * nobody waited for it any more, warm sandboxes of an earlier run.
 */
export class OrphanReaper {
  readonly #engine: Engine;
  readonly #registry: SandboxRegistry;
  readonly #warmPool: WarmPool;
  readonly #logger: Logger;
  readonly #retries: RemovalRetries;
  readonly #removing = new Set<string>();

  constructor(
    registry: SandboxRegistry,
    warmPool: WarmPool,
    parts: { readonly engine: Engine; readonly logger: Logger; readonly retries: RemovalRetries },
  ) {
    this.#registry = registry;
    this.#warmPool = warmPool;
    this.#engine = parts.engine;
    this.#logger = parts.logger;
    this.#retries = parts.retries;
  }

  /** Removes orphans among what the engine has; what cannot be removed is tried again. */
  reap(present: readonly EngineSandbox[]): void {
    const owned = this.#registry.live();
    const refs = new Set(owned.flatMap(({ phase }) => refOf(phase) ?? []));
    const ids = new Set(owned.filter(({ phase }) => phase.state === "CREATING").map(idOf));
    for (const found of present) {
      const known = refs.has(found.ref) || ids.has(idOf(found)) || this.#warmPool.owns(found);
      if (!known && !this.#removing.has(found.ref) && !this.#retries.has(found.ref)) void this.#remove(found);
    }
  }

  async #remove(found: EngineSandbox): Promise<void> {
    const { ref, sandboxId, generation } = found;
    this.#removing.add(ref);
    try {
      await this.#engine.remove(ref);
      this.#retries.gone(ref);
      this.#logger.info({ ref, sandboxId, generation }, "removed a sandbox that belonged to nothing");
    } catch (error) {
      this.#retries.failed(ref, sandboxId, error, () => this.#remove(found));
    } finally {
      this.#removing.delete(ref);
    }
  }
}

/** The engine's name for what stands behind a sandbox, where it is known. */
function refOf(phase: ReturnType<SandboxRegistry["live"]>[number]["phase"]): string | undefined {
  if ("engine" in phase) return phase.engine.ref;
  return phase.state === "CREATING" ? phase.warmRef : undefined;
}

function idOf(sandbox: {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation: number;
}): string {
  return JSON.stringify([sandbox.owner, sandbox.sandboxId, sandbox.generation]);
}
