import type { Clock } from "../base/clock.ts";
import { FairShare } from "../base/fair-share.ts";
import { compositeKey } from "../base/ids.ts";
import { OrderedIndex, type Position, type Slice, type Sliced } from "../base/ordered-index.ts";
import type { SandboxRecord } from "./record.ts";

/** How long an ended sandbox stays readable. */
const KEEP_ENDED_MS = 24 * 3600 * 1000;

/** All readable sandboxes: live ones, and those that ended in the last 24 hours. */
export class SandboxRegistry {
  readonly #clock: Clock;
  readonly #keepEnded: number;
  readonly #onForget: (record: SandboxRecord) => void;
  readonly #records = new Map<string, SandboxRecord>();
  readonly #live = new Set<SandboxRecord>();
  /** By owner, in the order of their creation. */
  readonly #readableByOwner = new OrderedIndex<SandboxRecord>(positionOf, bytesOf);
  readonly #liveByOwner = new OrderedIndex<SandboxRecord>(positionOf, bytesOf);
  /** Ended sandboxes with the time at which they expire, oldest first. */
  readonly #ended = new Map<SandboxRecord, number>();
  readonly #endedShares = new FairShare<SandboxRecord>();

  /**
   * @param onForget called with each ended sandbox that is forgotten.
   * @param keepEnded how many ended sandboxes to keep at most. Beyond that, the oldest of the owner with the most are
   * removed first.
   */
  constructor(clock: Clock, onForget: (record: SandboxRecord) => void, keepEnded = 10_000) {
    this.#clock = clock;
    this.#onForget = onForget;
    this.#keepEnded = keepEnded;
  }

  /** The key of a sandbox in maps and locks. Two owners may use the same id. */
  static key(owner: string, sandboxId: string): string {
    return compositeKey(owner, sandboxId);
  }

  get(owner: string, sandboxId: string): SandboxRecord | undefined {
    this.#forget();
    return this.#records.get(SandboxRegistry.key(owner, sandboxId));
  }

  /** Adds a record, replacing an ended one with the same id. */
  add(record: SandboxRecord): void {
    const previous = this.#records.get(SandboxRegistry.key(record.owner, record.sandboxId));
    if (previous !== undefined) this.#remove(previous);
    this.#records.set(SandboxRegistry.key(record.owner, record.sandboxId), record);
    this.#readableByOwner.add(record.owner, record);
    if (!record.live) return;
    this.#live.add(record);
    this.#liveByOwner.add(record.owner, record);
  }

  /** Starts the time after which an ended record is removed. */
  retire(record: SandboxRecord): void {
    if (record.phase.state !== "TERMINATED") return;
    if (this.#live.delete(record)) this.#liveByOwner.delete(record.owner, record);
    this.#ended.set(record, record.phase.endedAt + KEEP_ENDED_MS);
    this.#endedShares.set(record.owner, record);
    this.#forget();
  }

  /** All live records, in the order they were added. */
  live(): SandboxRecord[] {
    return [...this.#live];
  }

  /** Records of an owner, newest first. @param ended whether to include ended ones. */
  list(
    owner: string,
    ended: boolean,
    slice: Slice,
    wanted: (record: SandboxRecord) => boolean,
  ): Sliced<SandboxRecord> {
    this.#forget();
    return (ended ? this.#readableByOwner : this.#liveByOwner).slice(owner, slice, wanted);
  }

  /** Live records of an owner, oldest first. */
  liveOf(owner: string): SandboxRecord[] {
    return [...this.#liveByOwner.newestFirst(owner)].reverse();
  }

  /** The live records that the engine has a sandbox for, by its ref. For many of them, {@link byRef} would take long. */
  byRefs(): Map<string, SandboxRecord> {
    const found = new Map<string, SandboxRecord>();
    for (const record of this.#live) if ("engine" in record.phase) found.set(record.phase.engine.ref, record);
    return found;
  }

  byRef(ref: string): SandboxRecord | undefined {
    for (const record of this.#live) {
      if ("engine" in record.phase && record.phase.engine.ref === ref) return record;
    }
    return undefined;
  }

  #forget(): void {
    const now = this.#clock.monotonicMs();
    for (const [record, forgetAt] of this.#ended) {
      if (forgetAt > now) break;
      this.#remove(record);
      this.#onForget(record);
    }
    for (const { item } of this.#endedShares.beyond(this.#keepEnded)) {
      this.#remove(item);
      this.#onForget(item);
    }
  }

  #remove(record: SandboxRecord): void {
    this.#ended.delete(record);
    this.#endedShares.delete(record.owner, record);
    this.#records.delete(SandboxRegistry.key(record.owner, record.sandboxId));
    this.#readableByOwner.delete(record.owner, record);
  }
}

function bytesOf({ specBytes }: SandboxRecord): number {
  return specBytes;
}

function positionOf({ place, sandboxId }: SandboxRecord): Position {
  return { at: place, id: sandboxId };
}
