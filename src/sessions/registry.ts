import { FairShare } from "../base/fair-share.ts";
import { compositeKey } from "../base/ids.ts";
import { OrderedIndex, type Position, type Slice, type Sliced } from "../base/ordered-index.ts";
import type { SessionRecord } from "./record.ts";

/**
 * Sessions that are kept after their sandboxes have ended, so that the next call on each reports it. A large one counts
 * as several.
 */
const MAX_LOST = 10_000;
const BYTES_OF_ONE = 4096;

/** Identifies a session: a worker has at most one of each type. */
export interface SessionKey {
  readonly owner: string;
  readonly workerId: string;
  readonly resourceType: string;
}

/** All sessions except temporary ones. */
export class SessionRegistry {
  readonly #records = new Map<string, SessionRecord>();
  /** By owner; by owner and worker; by owner and type. */
  readonly #index = new OrderedIndex<SessionRecord>(positionOf, ({ bytes }) => bytes);
  /** Those whose sandboxes have ended. */
  readonly #lost = new FairShare<SessionRecord>();

  /** The name of a session's lock. */
  static lockOf({ owner, workerId, resourceType }: SessionKey): string {
    return compositeKey(owner, workerId, resourceType);
  }

  get(key: SessionKey): SessionRecord | undefined {
    return this.#records.get(SessionRegistry.lockOf(key));
  }

  /** Adds a session. Replaces the one with the same key. */
  add(record: SessionRecord): void {
    const name = SessionRegistry.lockOf(keyOf(record));
    const previous = this.#records.get(name);
    if (previous !== undefined) this.remove(previous);
    this.#records.set(name, record);
    for (const key of indexKeys(record)) this.#index.add(key, record);
  }

  /** Removes a session, unless another has replaced it. */
  remove(record: SessionRecord): void {
    const name = SessionRegistry.lockOf(keyOf(record));
    if (this.#records.get(name) !== record) return;
    this.#records.delete(name);
    this.#lost.delete(record.init.owner, record);
    for (const key of indexKeys(record)) this.#index.delete(key, record);
  }

  /**
   * Notes that a session's sandbox has ended.
   * @returns sessions that are too many to keep for that: the oldest of the owner with the most.
   */
  lose(record: SessionRecord): SessionRecord[] {
    const size = 1 + Math.floor(record.bytes / BYTES_OF_ONE);
    if (this.get(keyOf(record)) === record) this.#lost.set(record.init.owner, record, size);
    return Array.from(this.#lost.beyond(MAX_LOST), ({ item }) => item);
  }

  /** Sessions of an owner, newest first. @param workerId undefined: all workers. @param types empty: all types. */
  list(
    owner: string,
    filter: { readonly workerId: string | undefined; readonly types: ReadonlySet<string> },
    slice: Slice,
    wanted: (record: SessionRecord) => boolean,
  ): Sliced<SessionRecord> {
    const { workerId, types } = filter;
    const [type] = types;
    const key =
      workerId !== undefined
        ? workerKey(owner, workerId)
        : type !== undefined && types.size === 1
          ? typeKey(owner, type)
          : owner;
    const isOfType = ({ init }: SessionRecord): boolean => types.size === 0 || types.has(init.type.name);
    return this.#index.slice(key, slice, (record) => isOfType(record) && wanted(record));
  }

  /** Oldest first. */
  all(): SessionRecord[] {
    return [...this.#records.values()];
  }

  /** Types of which a worker has sessions, oldest session first. */
  typesOf(owner: string, workerId: string): string[] {
    const newestFirst = [...this.#index.newestFirst(workerKey(owner, workerId))];
    return newestFirst.map(({ init }) => init.type.name).reverse();
  }
}

function indexKeys({ init }: SessionRecord): string[] {
  const { owner, workerId, type } = init;
  return [owner, workerKey(owner, workerId), typeKey(owner, type.name)];
}

function workerKey(owner: string, workerId: string): string {
  return compositeKey("worker", owner, workerId);
}

function typeKey(owner: string, type: string): string {
  return compositeKey("type", owner, type);
}

function positionOf({ init, sessionId }: SessionRecord): Position {
  return { at: init.createTimeMs, id: sessionId };
}

export function keyOf({ init }: SessionRecord): SessionKey {
  return { owner: init.owner, workerId: init.workerId, resourceType: init.type.name };
}
