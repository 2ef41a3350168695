import type { Transaction } from "../state/database.ts";
import type { EventLog } from "../state/event-log.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { SandboxRecord } from "./record.ts";
import type { SandboxEventBody } from "./sandbox.ts";
import type { SandboxStore, StoredPhase, StoredSandbox } from "./store.ts";

/** What a {@link SandboxJournal} writes to. */
export interface SandboxJournalParts {
  readonly store: SandboxStore;
  readonly transaction: Transaction;
  readonly events: EventLog<SandboxEventBody>;
  readonly writeBehind: WriteBehind;
  readonly time: ServiceTime;
}

/** Keeps what becomes of sandboxes: where each stands and the event that tells of it, both or neither. */
export class SandboxJournal {
  readonly #parts: SandboxJournalParts;
  #lastPlace: number;

  constructor(parts: SandboxJournalParts) {
    this.#parts = parts;
    this.#lastPlace = parts.store.lastPlace();
  }

  /** The place of a life that begins: behind all others. */
  nextPlace(): number {
    return ++this.#lastPlace;
  }

  /** The sandboxes of earlier runs, in the order in which their lives began. */
  load(): StoredSandbox[] {
    return this.#parts.store.load();
  }

  /**
   * Keeps a change before it is carried out.
   * @param also what is kept in the same go.
   * @throws `NO_SPACE` where it cannot be kept: it is not to happen then.
   */
  commit(record: SandboxRecord, body: SandboxEventBody, also: () => void = () => {}): void {
    const { store, transaction, events } = this.#parts;
    const event = events.eventOf(record, body);
    transaction(() => {
      store.put(this.#stored(record));
      events.store(event);
      also();
    });
    events.tell(event);
  }

  /** Keeps what has happened or is to happen in any case: where the disk takes nothing, as soon as it does. */
  commitEventually(record: SandboxRecord, body: SandboxEventBody): void {
    try {
      this.commit(record, body);
    } catch {
      this.#commitLater(record, body);
    }
  }

  /** Keeps soon that a sandbox was used. */
  used(record: SandboxRecord): void {
    const { store, writeBehind } = this.#parts;
    writeBehind.add(`used ${record.place}`, () => store.putUsed(this.#stored(record)));
  }

  /** Tells of something that changes nothing: where the disk takes nothing, as soon as it does. */
  emit(record: SandboxRecord, body: SandboxEventBody): void {
    const { events, transaction, writeBehind } = this.#parts;
    const event = events.eventOf(record, body);
    try {
      transaction(() => events.store(event));
      events.tell(event);
    } catch {
      events.wait(event);
      writeBehind.add(
        "events",
        () => events.store(),
        () => events.tell(),
      );
    }
  }

  /** Forgets a sandbox that ended long ago, soon. */
  forget(record: SandboxRecord): void {
    const { store, writeBehind } = this.#parts;
    const { place } = record;
    writeBehind.drop(`used ${place}`);
    writeBehind.add(`sandbox ${place}`, () => store.remove(place));
  }

  #commitLater(record: SandboxRecord, body: SandboxEventBody): void {
    const { store, writeBehind } = this.#parts;
    this.emit(record, body);
    writeBehind.add(`sandbox ${record.place}`, () => store.put(this.#stored(record)));
  }

  #stored(record: SandboxRecord): StoredSandbox {
    const { time } = this.#parts;
    const { owner, sandboxId, generation, place, spec, times } = record;
    return {
      owner,
      sandboxId,
      generation,
      place,
      spec,
      phase: this.#storedPhase(record),
      ...times,
      createdAt: time.at(times.createdAt),
      usedAt: time.at(times.usedAt),
    };
  }

  #storedPhase({ phase }: SandboxRecord): StoredPhase {
    switch (phase.state) {
      case "CREATING":
        return { state: "CREATING" };
      case "TERMINATED":
        return { ...phase, endedAt: this.#parts.time.at(phase.endedAt) };
      default:
        return phase;
    }
  }
}
