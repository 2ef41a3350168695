import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Database } from "./database.ts";

/** How old the stored time may be. It is exact unless the machine restarts and its wall clock was set meanwhile. */
const SAVE_INTERVAL_MS = 600_000;

/**
 * Time for what outlives the service: it starts as the wall time at which the
 * data directory is made and continues with the monotonic clock, also across
 * restarts. Setting the wall clock does not move it; only across a restart of
 * the machine itself the wall clock says how long that took.
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

  /** Continues from the time that was stored last. */
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

  /** Stores the time every 10 minutes, until {@link stop}. */
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
      // An older anchor gives the same time, unless the machine restarts.
    }
  }
}

/** One moment by every clock, in milliseconds. */
export interface TimeAnchor {
  readonly serviceMs: number;
  readonly monotonicMs: number;
  /** Which run of the machine `monotonicMs` counts in. */
  readonly bootId: string;
  readonly wallMs: number;
}

/** The last stored moment in the database. */
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
