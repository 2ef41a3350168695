import type { CancelTimer, Clock } from "../base/clock.ts";
import { failpoint } from "../base/failpoints.ts";
import { Turns } from "../base/turns.ts";
import type { SandboxDeleter } from "./delete.ts";
import type { SandboxRecord, TerminationRequest } from "./record.ts";
import type { SandboxRegistry } from "./registry.ts";

const MIN_INTERVAL_MS = 5;

/** How many expired sandboxes to remove at a time. */
const MAX_REMOVALS = 16;

/**
 * Ends sandboxes at their deadlines: sweeps at the next deadline, and at least once per interval. A slow removal does
 * not delay other sandboxes' deadlines.
 */
export class ExpirySweeper {
  readonly #registry: SandboxRegistry;
  readonly #deleter: SandboxDeleter;
  readonly #intervalMs: number;
  readonly #clock: Clock;
  readonly #removals = new Turns(MAX_REMOVALS);
  /** Sandboxes that a sweep is ending. */
  readonly #ending = new Set<SandboxRecord>();
  #timer: { readonly at: number; readonly cancel: CancelTimer } | undefined;
  #stopped = false;

  constructor(registry: SandboxRegistry, deleter: SandboxDeleter, intervalMs: number, clock: Clock) {
    this.#registry = registry;
    this.#deleter = deleter;
    this.#intervalMs = intervalMs;
    this.#clock = clock;
  }

  /** Makes sure that a sweep happens within `inMs`, and at the latest within the interval. */
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
      await this.#removals.run(() => this.#deleter.end(record, request));
    } catch {
      // The deleter retries.
    } finally {
      this.#ending.delete(record);
      // The sandbox stays if it was used meanwhile.
      this.arm(record.expiry()?.inMs);
    }
  }

  #armNext(): void {
    // A timer may fire slightly early, so that the deadline passes between the sweep and here. Then the sandbox is due
    // at once.
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
