import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Database } from "./database.ts";

/** How old the last note of the time may be. It is exact unless the machine restarts and its wall clock was set meanwhile. */
const SAVE_INTERVAL_MS = 600_000;

/**
 * Time for what outlives the service: it begins as the wall time of the data
 * directory's first day and goes on with the monotonic clock, through restarts
 * too. Setting the wall clock does not move it; only over a restart of the
 * machine itself the wall clock tells how long that took.
 */
export class ServiceTime {
  readonly #clock: Clock;
  readonly #store: TimeStore;
  /** Service time less monotonic time. */
  readonly #ahead: number;
  #cancel: CancelTimer = () => {};

  private constructor(clock: Clock, store: TimeStore, ahead: number) {
    this.#clock = clock;
    this.#store = store;
    this.#ahead = ahead;
  }

  /** Goes on from where the store says that it stood. */
  static resume(clock: Clock, store: TimeStore): ServiceTime {
    const anchor = store.load();
    const now = clock.monotonicMs();
    if (anchor === undefined) return new ServiceTime(clock, store, clock.wallMs() - now);
    const passed =
      anchor.bootId === clock.bootId ? now - anchor.monotonicMs : Math.max(0, clock.wallMs() - anchor.wallMs);
    return new ServiceTime(clock, store, anchor.serviceMs + passed - now);
  }

  nowMs(): number {
    return this.at(this.#clock.monotonicMs());
  }

  /** Service time of a moment of the monotonic clock. */
  at(monotonicMs: number): number {
    return monotonicMs + this.#ahead;
  }

  /** The moment of the monotonic clock that a service time is; before the machine's start it is negative. */
  toMonotonic(serviceMs: number): number {
    return serviceMs - this.#ahead;
  }

  /** Notes now and then where it stands, until {@link stop}. */
  start(): void {
    this.#save();
    this.#cancel = this.#clock.setTimer(SAVE_INTERVAL_MS, () => this.start());
  }

  stop(): void {
    this.#cancel();
    this.#save();
  }

  #save(): void {
    const { bootId } = this.#clock;
    const [monotonicMs, wallMs] = [this.#clock.monotonicMs(), this.#clock.wallMs()];
    try {
      this.#store.save({ serviceMs: this.at(monotonicMs), monotonicMs, bootId, wallMs });
    } catch {
      // An older anchor tells the same time, unless the machine restarts.
    }
  }
}

/** A moment by every clock there is. All in milliseconds. */
export interface TimeAnchor {
  readonly serviceMs: number;
  readonly monotonicMs: number;
  /** Which run of the machine `monotonicMs` counts in. */
  readonly bootId: string;
  readonly wallMs: number;
}

/** Keeps the last moment that the service saw. */
export class TimeStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): TimeAnchor | undefined {
    const row = this.#database.prepare("SELECT * FROM service_time").get();
    return (
      row && {
        serviceMs: Number(row.service_ms),
        monotonicMs: Number(row.monotonic_ms),
        bootId: String(row.boot_id),
        wallMs: Number(row.wall_ms),
      }
    );
  }

  save({ serviceMs, monotonicMs, bootId, wallMs }: TimeAnchor): void {
    this.#database
      .prepare("INSERT OR REPLACE INTO service_time VALUES (1, ?, ?, ?, ?)")
      .run(serviceMs, monotonicMs, bootId, wallMs);
  }
}
