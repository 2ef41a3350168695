import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { KeyedLock } from "../base/keyed-lock.ts";
import type { Engine } from "../engine/port.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import { DELETED, type SandboxRecord, type TerminationRequest } from "./record.ts";
import { SandboxRegistry } from "./registry.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { Termination } from "./sandbox.ts";

/** How long operations have to release their leases after these are aborted. */
const ABORT_WAIT_MS = 2_000;

interface Parts {
  readonly locks: KeyedLock;
  readonly registry: SandboxRegistry;
  readonly engine: Engine;
  readonly monitor: EngineMonitor;
  readonly journal: SandboxJournal;
  readonly clock: Clock;
  readonly observer: SandboxObserver;
  readonly retries: RemovalRetries;
}

/**
 * Deletes sandboxes: lets operations finish, aborts the rest, removes the container, and releases the place. Only one
 * deletion of a sandbox runs at a time. Other callers join it, and may shorten its grace.
 */
export class SandboxDeleter {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Ends a sandbox and returns when it is gone.
   * @throws `ENGINE_UNAVAILABLE` if the container could not be removed. The sandbox then stays in DELETING and keeps
   *   its place, and Berth keeps retrying until it is gone. This may be called again.
   */
  async end(record: SandboxRecord, request: TerminationRequest): Promise<void> {
    if (!record.live) return;
    if (record.deletion !== undefined) {
      record.deletion.join(request);
      await record.deletion.done;
      // The joined deletion may have been a sweep that found the sandbox in use again, and ended nothing.
      return this.end(record, request);
    }
    const grace = new Grace(this.#parts.clock, request.graceMs);
    let onlyIf = request.onlyIf;
    const done = this.#run(record, request, grace, () => onlyIf?.() ?? true)
      .finally(() => {
        record.deletion = undefined;
      })
      .catch((error: unknown) => {
        this.#retry(record, error);
        throw error;
      });
    record.deletion = {
      done,
      join: (other) => {
        grace.shorten(other.graceMs);
        // A delete that joins a sweep deletes the sandbox even if it is no longer due.
        if (other.onlyIf === undefined) onlyIf = undefined;
      },
    };
    return done;
  }

  /** Marks a sandbox as ended and releases its place. For a sandbox whose container is gone or never existed. */
  finish(record: SandboxRecord, termination: Termination): void {
    const { clock, registry, journal } = this.#parts;
    if (!record.live) return;
    record.phase = { state: "TERMINATED", termination, endedAt: clock.monotonicMs() };
    record.reservation.release();
    registry.retire(record);
    journal.commitEventually(record, { type: "TERMINATED", termination });
  }

  #retry(record: SandboxRecord, error: unknown): void {
    const { phase, sandboxId } = record;
    if (phase.state !== "DELETING") return;
    record.reservation.stay();
    const request = { ...phase.termination, graceMs: 0 };
    this.#parts.retries.failed(phase.engine.ref, sandboxId, error, () => this.end(record, request));
  }

  async #run(
    record: SandboxRecord,
    request: TerminationRequest,
    grace: Grace,
    stillDue: () => boolean,
  ): Promise<void> {
    const { locks, engine, monitor, journal, clock, observer, retries } = this.#parts;
    const why = request.message === DELETED ? "." : `: ${request.message}`;
    const deleted = new BerthError("SANDBOX_DELETED", `The sandbox was deleted${why}`, {
      metadata: { sandbox_id: record.sandboxId, cause: request.cause },
    });
    if (record.phase.state === "CREATING") record.phase.abort.abort(deleted);
    await locks.run(SandboxRegistry.key(record.owner, record.sandboxId), async () => {
      const { phase } = record;
      if (phase.state === "TERMINATED") return;
      if (phase.state === "CREATING") {
        // The create held the lock until now. It has failed and left nothing behind.
        const { cause, message } = request;
        return this.finish(record, { cause, message, timeMs: clock.wallMs() });
      }
      if (phase.state !== "DELETING" && !stillDue()) return;
      const { cause, message } = phase.state === "DELETING" ? phase.termination : request;
      const termination: Termination = { cause, message, timeMs: clock.wallMs() };
      record.phase = { state: "DELETING", engine: phase.engine, termination };
      if (phase.state !== "DELETING") journal.commitEventually(record, { type: "DELETING", termination });
      failpoint("delete.intended");
      await grace.wait(record.leases.drained());
      record.leases.abortAll(deleted);
      await new Grace(clock, ABORT_WAIT_MS).wait(record.leases.drained());
      const sandbox = record.leased();
      if (sandbox !== undefined) observer.ending(sandbox);
      record.reservation.leave();
      await engine.remove(phase.engine.ref, monitor.lost);
      retries.gone(phase.engine.ref);
      failpoint("delete.removed");
      this.finish(record, { ...termination, timeMs: clock.wallMs() });
      failpoint("delete.finished");
    });
  }
}

/** A wait with a time limit that can be shortened. */
class Grace {
  readonly #clock: Clock;
  readonly #over = Promise.withResolvers<void>();
  #endsAt: number;
  #cancel: CancelTimer = () => {};

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#endsAt = clock.monotonicMs() + ms;
  }

  shorten(ms: number): void {
    this.#endsAt = Math.min(this.#endsAt, this.#clock.monotonicMs() + ms);
    this.#arm();
  }

  async wait(until: Promise<void>): Promise<void> {
    this.#arm();
    await Promise.race([until, this.#over.promise]);
    this.#cancel();
  }

  #arm(): void {
    this.#cancel();
    this.#cancel = this.#clock.setTimer(this.#endsAt - this.#clock.monotonicMs(), this.#over.resolve);
  }
}
