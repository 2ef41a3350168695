import type { SessionRecord } from "./session-record.ts";

/** Which session: a worker has at most one of each type. */
export interface SessionKey {
  readonly owner: string;
  readonly workerId: string;
  readonly resourceType: string;
}

/** The sessions there are, temporary ones left out. */
export class SessionRegistry {
  readonly #records = new Map<string, SessionRecord>();

  /** The name of a session's lock. */
  static lockOf({ owner, workerId, resourceType }: SessionKey): string {
    return JSON.stringify([owner, workerId, resourceType]);
  }

  get(key: SessionKey): SessionRecord | undefined {
    return this.#records.get(SessionRegistry.lockOf(key));
  }

  add(record: SessionRecord): void {
    this.#records.set(SessionRegistry.lockOf(keyOf(record)), record);
  }

  /** Forgets a session, unless another has taken its place. */
  remove(record: SessionRecord): void {
    const name = SessionRegistry.lockOf(keyOf(record));
    if (this.#records.get(name) === record) this.#records.delete(name);
  }

  /** Oldest first. */
  all(): SessionRecord[] {
    return [...this.#records.values()];
  }

  /** Types that a worker has sessions of, oldest first. */
  typesOf(owner: string, workerId: string): string[] {
    return this.all()
      .filter(({ init }) => init.owner === owner && init.workerId === workerId)
      .map(({ init }) => init.type.name);
  }
}

/** Which session a record is of. */
export function keyOf({ init }: SessionRecord): SessionKey {
  return { owner: init.owner, workerId: init.workerId, resourceType: init.type.name };
}
