import { untilAborted } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";

/** A call that waits for a measurement. */
export interface RoomRequest {
  readonly signal?: AbortSignal;
  /** When it arrived, on the monotonic clock. Default: now. */
  readonly arrivedMs?: number;
}

/** After a measurement Berth rests this many times as long as that took, so it uses at most a tenth of one CPU. */
export const REST_FACTOR = 9;
/** The longest rest after a measurement, unless that took longer: a caller who has just deleted files waits for it. */
const MAX_REST_MS = 5_000;

/** A rest after a measurement. */
interface Rest {
  readonly measuredFromMs: number;
  readonly over: Promise<void>;
}

/**
 * Measures again, before a call is refused, because files may have been deleted since, or when callers ask for it. One
 * measurement at a time, with rests in between, serves all callers, so those who repeat a call do not keep the disk busy.
 */
export class Rechecks {
  readonly #clock: Clock;
  /** Measurements that run or wait for the end of a rest, by what they measure. */
  readonly #measuring = new Map<string, Promise<void>>();
  readonly #rests = new Map<string, Rest>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Returns after a measurement that began after the call arrived, or ended after it.
   * @param key what is measured.
   * @throws what `measure` throws.
   */
  async run(
    key: string,
    measure: () => Promise<unknown>,
    { signal, arrivedMs = this.#clock.monotonicMs() }: RoomRequest,
  ): Promise<void> {
    const last = this.#rests.get(key);
    if (last !== undefined && last.measuredFromMs >= arrivedMs) return;
    let measuring = this.#measuring.get(key);
    if (measuring === undefined) {
      measuring = this.#afterRest(key, measure).finally(() => this.#measuring.delete(key));
      this.#measuring.set(key, measuring);
    }
    await untilAborted(measuring, signal);
  }

  async #afterRest(key: string, measure: () => Promise<unknown>): Promise<void> {
    await this.#rests.get(key)?.over;
    const measuredFromMs = this.#clock.monotonicMs();
    try {
      await measure();
    } finally {
      this.#rest(key, measuredFromMs);
    }
  }

  #rest(key: string, measuredFromMs: number): void {
    const tookMs = this.#clock.monotonicMs() - measuredFromMs;
    if (tookMs === 0) return;
    const { promise: over, resolve } = Promise.withResolvers<void>();
    this.#rests.set(key, { measuredFromMs, over });
    this.#clock.setTimer(Math.min(tookMs * REST_FACTOR, Math.max(tookMs, MAX_REST_MS)), () => {
      this.#rests.delete(key);
      resolve();
    });
  }
}
