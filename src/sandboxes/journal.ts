import type { Transaction } from "../state/database.ts";
import type { EventLog } from "../state/event-log.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { SandboxRecord } from "./record.ts";
import type { SandboxEventBody } from "./sandbox.ts";
import type { FoundSandbox, SandboxStore, StoredPhase, StoredSandbox } from "./store.ts";

interface Parts {
  readonly store: SandboxStore;
  readonly transaction: Transaction;
  readonly events: EventLog<SandboxEventBody>;
  readonly writeBehind: WriteBehind;
  readonly time: ServiceTime;
}

/** Stores each change of a sandbox together with its event, in one transaction. */
export class SandboxJournal {
  readonly #parts: Parts;
  #lastPlace: number;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#lastPlace = parts.store.lastPlace();
  }

  /** The place of a new sandbox, after all others. */
  nextPlace(): number {
    return ++this.#lastPlace;
  }

  /** The sandboxes of earlier runs of the service, in the order of their creation. */
  load(): FoundSandbox[] {
    return this.#parts.store.load();
  }

  /**
   * Stores a change before it is carried out, and then publishes its event.
   * @param also writes in the same transaction.
   * @throws `NO_SPACE` if it cannot be stored. Then the change must not happen.
   */
  commit(record: SandboxRecord, body: SandboxEventBody, also: () => void = () => {}): void {
    const { store, transaction, events, writeBehind } = this.#parts;
    const event = events.eventOf(record, body);
    transaction(() => {
      store.put(this.#stored(record));
      events.store(event);
      also();
    });
    // An earlier change that waits is part of this one.
    writeBehind.drop(`sandbox ${record.place}`);
    events.publish(event);
  }

  /**
   * Stores a change that has happened or will happen in any case. If the disk is full, stores it once there is room.
   */
  commitEventually(record: SandboxRecord, body: SandboxEventBody): void {
    try {
      this.commit(record, body);
    } catch {
      this.#commitLater(record, body);
      return;
    }
    this.#shrink(record);
  }

  /** Records that a sandbox was used. Written soon, in a batch. */
  used(record: SandboxRecord): void {
    const { store, writeBehind, time } = this.#parts;
    const { place } = record;
    // Not the whole sandbox: the spec of an ended one is read from the store, where a later one may have replaced it.
    writeBehind.add(`used ${place}`, () => {
      const { usedTimeMs, usedAt } = record.times;
      store.putUsed({ place, usedTimeMs, usedAt: time.at(usedAt) });
    });
  }

  /** Publishes an event that does not change the sandbox. If the disk is full, publishes it once there is room. */
  emit(record: SandboxRecord, body: SandboxEventBody): void {
    const { events, transaction } = this.#parts;
    const event = events.eventOf(record, body);
    try {
      // Those that wait come first.
      if (!events.waits) {
        transaction(() => events.store(event));
        events.publish(event);
        return;
      }
    } catch {
      // The disk is full.
    }
    events.defer(event);
    this.#emitWaiting();
  }

  /** Removes a sandbox that ended long ago. Written soon, in a batch. */
  forget(record: SandboxRecord): void {
    const { store, writeBehind } = this.#parts;
    const { place } = record;
    writeBehind.drop(`used ${place}`);
    writeBehind.add(`sandbox ${place}`, () => store.remove(place));
  }

  #emitWaiting(): void {
    const { events, writeBehind } = this.#parts;
    writeBehind.add(
      "events",
      () => events.store(),
      () => {
        events.publish();
        if (events.waits) this.#emitWaiting();
      },
    );
  }

  #commitLater(record: SandboxRecord, body: SandboxEventBody): void {
    const { store, writeBehind } = this.#parts;
    this.emit(record, body);
    writeBehind.add(
      `sandbox ${record.place}`,
      () => store.put(this.#stored(record)),
      () => this.#shrink(record),
    );
  }

  #shrink(record: SandboxRecord): void {
    if (!record.live) record.shrink(() => this.#parts.store.spec(record.place));
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
