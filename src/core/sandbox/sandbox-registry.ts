import type { Clock } from "../ports/clock.ts";
import type { SandboxRecord } from "./sandbox-record.ts";

/** How long an ended sandbox stays readable. */
const KEEP_ENDED_MS = 24 * 3600 * 1000;

/** Every sandbox that can be read: the live ones, and the ended ones of the last 24 hours. */
export class SandboxRegistry {
  readonly #clock: Clock;
  readonly #keepEnded: number;
  readonly #onForget: (record: SandboxRecord) => void;
  readonly #records = new Map<string, SandboxRecord>();
  /** Keys of ended sandboxes with the time they may be forgotten, oldest first. */
  readonly #ended = new Map<SandboxRecord, number>();

  /**
   * @param onForget called with each ended sandbox that is readable no more.
   * @param keepEnded how many ended sandboxes are kept at most; the oldest go first.
   */
  constructor(clock: Clock, onForget: (record: SandboxRecord) => void, keepEnded = 10_000) {
    this.#clock = clock;
    this.#onForget = onForget;
    this.#keepEnded = keepEnded;
  }

  /** Ids are the owner's own: two owners may use the same one and never hear of each other. */
  static key(owner: string, sandboxId: string): string {
    return JSON.stringify([owner, sandboxId]);
  }

  get(owner: string, sandboxId: string): SandboxRecord | undefined {
    this.#forget();
    return this.#records.get(SandboxRegistry.key(owner, sandboxId));
  }

  /** Adds a record, in place of an ended one with its id. */
  add(record: SandboxRecord): void {
    const key = SandboxRegistry.key(record.owner, record.sandboxId);
    const previous = this.#records.get(key);
    if (previous !== undefined) this.#ended.delete(previous);
    this.#records.set(key, record);
  }

  /** Starts the time after which an ended record is forgotten. */
  retire(record: SandboxRecord): void {
    if (record.phase.state !== "TERMINATED") return;
    this.#ended.set(record, record.phase.endedAt + KEEP_ENDED_MS);
    this.#forget();
  }

  /** Every record, in the order they were added. */
  all(): SandboxRecord[] {
    this.#forget();
    return [...this.#records.values()];
  }

  live(): SandboxRecord[] {
    return this.all().filter((record) => record.live);
  }

  byRef(ref: string): SandboxRecord | undefined {
    for (const record of this.#records.values()) {
      if ("engine" in record.phase && record.phase.engine.ref === ref) return record;
    }
    return undefined;
  }

  #forget(): void {
    const now = this.#clock.monotonicMs();
    for (const [record, forgetAt] of this.#ended) {
      if (forgetAt > now && this.#ended.size <= this.#keepEnded) return;
      this.#ended.delete(record);
      this.#records.delete(SandboxRegistry.key(record.owner, record.sandboxId));
      this.#onForget(record);
    }
  }
}
