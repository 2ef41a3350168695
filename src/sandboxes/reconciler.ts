import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineEvent, EngineSandbox } from "../engine/port.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { Capacity } from "./capacity.ts";
import type { SandboxDeleter } from "./deleter.ts";
import type { EngineFollower } from "./engine-monitor.ts";
import type { ExternalExitWatcher } from "./external-exit.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import type { OrphanReaper } from "./orphan-reaper.ts";
import { type Phase, SandboxRecord } from "./record.ts";
import type { SandboxRegistry } from "./registry.ts";
import type { Termination } from "./sandbox.ts";
import type { StoredSandbox } from "./store.ts";

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
