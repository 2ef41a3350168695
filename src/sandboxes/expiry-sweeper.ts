import { Semaphore } from "async-mutex";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { failpoint } from "../base/failpoints.ts";
import type { SandboxDeleter } from "./delete.ts";
import type { SandboxRecord, TerminationRequest } from "./record.ts";
import type { SandboxRegistry } from "./registry.ts";

/** Two sweeps are at least this far apart. */
const MIN_INTERVAL_MS = 5;

/** Sandboxes that expire at the same moment are removed this many at a time. */
const MAX_REMOVALS = 16;

/**
 * Ends sandboxes at their deadlines: sweeps at the next deadline, and every
 * interval at the latest. A slow removal delays no other sandbox's deadline.
 */
export class ExpirySweeper {
  readonly #registry: SandboxRegistry;
  readonly #deleter: SandboxDeleter;
  readonly #intervalMs: number;
  readonly #clock: Clock;
  readonly #removals = new Semaphore(MAX_REMOVALS);
  /** Being ended by a sweep. */
  readonly #ending = new Set<SandboxRecord>();
  #timer: { readonly at: number; readonly cancel: CancelTimer } | undefined;
  #stopped = false;

  constructor(registry: SandboxRegistry, deleter: SandboxDeleter, intervalMs: number, clock: Clock) {
    this.#registry = registry;
    this.#deleter = deleter;
    this.#intervalMs = intervalMs;
    this.#clock = clock;
  }

  /** Makes sure that a sweep happens within `inMs`, and within the interval at the latest. */
  arm(inMs = Number.POSITIVE_INFINITY): void {
    if (this.#stopped) return;
    const delay = Math.max(0, Math.min(inMs, this.#intervalMs));
    const at = this.#clock.monotonicMs() + delay;
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#timer?.cancel();
    const cancel = this.#clock.setTimer(delay, () => {
      this.#timer = undefined;
      void this.sweep();
      this.#armNext();
    });
    this.#timer = { at, cancel };
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** Ends every sandbox that has reached a deadline. Waits for all of them; never rejects. */
  async sweep(): Promise<void> {
    const due = this.#registry.live().filter((record) => {
      return !this.#ending.has(record) && isDue(record);
    });
    await Promise.all(due.map((record) => this.#end(record)));
  }

  async #end(record: SandboxRecord): Promise<void> {
    const cause = record.expiry()?.cause ?? "DELETED";
    const message =
      cause === "MAX_LIFETIME"
        ? `It reached its max_lifetime of ${record.spec.maxLifetimeMs} ms.`
        : `Nothing used it for its idle_timeout of ${record.spec.idleTimeoutMs} ms.`;
    const request: TerminationRequest = { cause, message, graceMs: 0, onlyIf: () => isDue(record) };
    this.#ending.add(record);
    failpoint("sweep.due");
    try {
      await this.#removals.runExclusive(() => this.#deleter.end(record, request));
    } catch {
      // The deleter tries again.
    } finally {
      this.#ending.delete(record);
      // It may have been used meanwhile, and then stays.
      this.arm(record.expiry()?.inMs);
    }
  }

  #armNext(): void {
    // A timer may come a moment early, and the deadline pass between the sweep and here: then it is due at once.
    const waiting = this.#registry
      .live()
      .filter((record) => !this.#ending.has(record) && record.deletion === undefined);
    const coming = waiting.flatMap((record) => record.expiry()?.inMs ?? []);
    this.arm(Math.max(MIN_INTERVAL_MS, Math.min(Number.POSITIVE_INFINITY, ...coming)));
  }
}

function isDue(record: SandboxRecord): boolean {
  return (record.expiry()?.inMs ?? 1) <= 0;
}
