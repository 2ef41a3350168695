import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Database } from "./database.ts";

/**
 * How old the stored time may be. The resumed time is still exact, unless the machine restarts and its wall clock was
 * set meanwhile.
 */
const SAVE_INTERVAL_MS = 600_000;

/**
 * Time for everything that outlives the service. It starts as the wall time at which the data directory is created, and
 * continues with the monotonic clock, also across restarts of the service. Changes of the wall clock do not affect it.
 * Only across a restart of the machine the wall clock determines how long that took.
 */
export class ServiceTime {
  readonly #clock: Clock;
  readonly #store: TimeStore;
  /** Service time minus monotonic time. */
  readonly #ahead: number;
  #cancel: CancelTimer = () => {};

  private constructor(clock: Clock, store: TimeStore, ahead: number) {
    this.#clock = clock;
    this.#store = store;
    this.#ahead = ahead;
  }

  /** Continues from the last stored time. */
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

  /** Converts a time of the monotonic clock to service time. */
  at(monotonicMs: number): number {
    return monotonicMs + this.#ahead;
  }

  /** Converts service time to a time of the monotonic clock, which is negative for times before the machine's start. */
  toMonotonic(serviceMs: number): number {
    return serviceMs - this.#ahead;
  }

  /** Stores the time every 10 minutes until {@link stop}. */
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

/** One moment on every clock, in milliseconds. */
interface TimeAnchor {
  readonly serviceMs: number;
  readonly monotonicMs: number;
  /** The boot that `monotonicMs` belongs to. */
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
