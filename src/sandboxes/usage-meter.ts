import { untilAborted } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Engine, EngineUsage } from "../engine/port.ts";

/** What a sandbox used when it was measured. */
interface Measurement extends EngineUsage {
  /** Wall time in milliseconds. */
  readonly measureTimeMs: number;
}

/** How long a measurement may take. */
const MEASURE_MS = 10_000;

/**
 * Measures what sandboxes use. There is at most one measurement of a sandbox at a time, which concurrent callers share:
 * so a flood of calls costs an engine that starts a process for each one, or takes a second, no more than a few.
 */
export class UsageMeter {
  readonly #engine: Engine;
  readonly #clock: Clock;
  /** Measurements in progress, by the sandbox's ref. */
  readonly #measuring = new Map<string, Promise<Measurement>>();

  constructor(engine: Engine, clock: Clock) {
    this.#engine = engine;
    this.#clock = clock;
  }

  /**
   * Measures a sandbox. The measurement continues when a caller's signal is aborted, because others may wait for it.
   * @param lost ends it. @throws `ENGINE_UNAVAILABLE` also when it takes too long.
   */
  measure(ref: string, lost: AbortSignal, signal: AbortSignal): Promise<Measurement> {
    let measuring = this.#measuring.get(ref);
    if (measuring === undefined) {
      measuring = this.#measure(ref, lost).finally(() => this.#measuring.delete(ref));
      this.#measuring.set(ref, measuring);
    }
    return untilAborted(measuring, signal);
  }

  async #measure(ref: string, lost: AbortSignal): Promise<Measurement> {
    const late = new AbortController();
    const cancelTimer = this.#clock.setTimer(MEASURE_MS, () => late.abort(tooLate()));
    const limit = AbortSignal.any([lost, late.signal]);
    try {
      const usage = await untilAborted(this.#engine.usage(ref, limit), limit);
      return { ...usage, measureTimeMs: this.#clock.wallMs() };
    } finally {
      cancelTimer();
    }
  }
}

function tooLate(): BerthError {
  const seconds = MEASURE_MS / 1000;
  return new BerthError("ENGINE_UNAVAILABLE", `The engine did not measure the sandbox within ${seconds}s.`, {
    retryAfterMs: 2_000,
  });
}
