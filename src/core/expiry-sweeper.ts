import { inBatches } from "./in-batches.ts";
import type { CancelTimer, Clock } from "./ports/clock.ts";
import type { Logger } from "./ports/logger.ts";
import type { SandboxRecord } from "./sandbox-record.ts";
import type { SandboxRegistry } from "./sandbox-registry.ts";
import type { SandboxTerminator } from "./sandbox-terminator.ts";

/** Ends sandboxes at their deadlines: at the next one that comes, and every interval at the latest. */
export class ExpirySweeper {
  readonly #registry: SandboxRegistry;
  readonly #terminator: SandboxTerminator;
  readonly #intervalMs: number;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #timer: { readonly at: number; readonly cancel: CancelTimer } | undefined;
  #stopped = false;

  constructor(
    registry: SandboxRegistry,
    terminator: SandboxTerminator,
    intervalMs: number,
    parts: { readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#registry = registry;
    this.#terminator = terminator;
    this.#intervalMs = intervalMs;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /** Sees to it that a sweep happens within `inMs`, and within the interval at the latest. */
  arm(inMs = Number.POSITIVE_INFINITY): void {
    if (this.#stopped) return;
    const delay = Math.max(0, Math.min(inMs, this.#intervalMs));
    const at = this.#clock.monotonicMs() + delay;
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#timer?.cancel();
    const cancel = this.#clock.setTimer(delay, () => {
      this.#timer = undefined;
      this.sweep().finally(() => this.#armNext());
    });
    this.#timer = { at, cancel };
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** Ends every sandbox that has reached a deadline, and tries failed removals again. Waits for all of them. */
  async sweep(): Promise<void> {
    const due = this.#registry.live().filter((record) => {
      const stuck = record.phase.state === "DELETING" && record.deletion === undefined;
      return stuck || isDue(record);
    });
    await inBatches(due, (record) => this.#end(record));
  }

  async #end(record: SandboxRecord): Promise<void> {
    const cause = record.expiry()?.cause ?? "DELETED";
    const message =
      cause === "MAX_LIFETIME"
        ? `It reached its max_lifetime of ${record.spec.maxLifetimeMs} ms.`
        : `Nothing used it for its idle_timeout of ${record.spec.idleTimeoutMs} ms.`;
    try {
      await this.#terminator.end(record, { cause, message, graceMs: 0, onlyIf: () => isDue(record) });
    } catch (error) {
      const { sandboxId } = record;
      this.#logger.warn(
        { sandboxId, err: error },
        "an expired sandbox is not gone yet; the next sweep tries again",
      );
    }
  }

  #armNext(): void {
    // A deadline that has passed and is still here is being removed, or failed to be: it waits for the interval.
    const coming = this.#registry.live().flatMap((record) => record.expiry()?.inMs ?? []);
    this.arm(Math.min(Number.POSITIVE_INFINITY, ...coming.filter((inMs) => inMs > 0)));
  }
}

function isDue(record: SandboxRecord): boolean {
  return (record.expiry()?.inMs ?? 1) <= 0;
}
