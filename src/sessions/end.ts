import { within } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SessionPlaces } from "./places.ts";
import { type SessionRecord, sessionLost } from "./record.ts";
import type { SessionRegistry } from "./registry.ts";
import type { SessionJournal } from "./store.ts";

/**
 * How long aborted calls have to end. Less than an interpreter, a page or a desktop may take to react: its session ends,
 * so it has nothing to lose.
 */
const ABORT_WAIT_MS = 2_000;

interface SessionEnderParts {
  readonly registry: SessionRegistry;
  readonly places: SessionPlaces;
  readonly sandboxes: SandboxManager;
  readonly journal: SessionJournal;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Ends sessions. Tracks the ends that nobody but a shutdown waits for. */
export class SessionEnder {
  readonly #parts: SessionEnderParts;
  readonly #work = new Set<Promise<unknown>>();

  constructor(parts: SessionEnderParts) {
    this.#parts = parts;
  }

  /**
   * Ends a session: lets calls finish for `graceMs`, aborts the rest, and removes the backend and the session's own
   * sandbox. The session is gone afterwards even if a step fails. Returns the first failure; never rejects. The caller
   * holds the lock of the session's key, or the session is no longer in the registry.
   * @param how what happened to it, for those who use it or its sandbox.
   */
  async end(record: SessionRecord, graceMs: number, how = "was destroyed"): Promise<unknown> {
    const { registry, places, journal, clock, logger } = this.#parts;
    record.state = "DESTROYING";
    record.stopTimer();
    const { calls, sessionId } = record;
    if (calls.count > 0) {
      await within(calls.drained(), graceMs, clock);
      calls.abortAll(sessionLost(record, `it ${how}`));
      await within(calls.drained(), ABORT_WAIT_MS, clock);
    }
    record.views.abortAll(sessionLost(record, `it ${how}`));
    const failure = await this.#cleanUp(record, `Its session ${JSON.stringify(sessionId)} ${how}.`);
    if (failure !== undefined) {
      logger.warn({ sessionId, err: failure }, "a session was not cleaned up; it is gone anyway");
    }
    places.release(record);
    registry.remove(record);
    journal.forget(sessionId);
    return failure;
  }

  /** Completes what outlives a session, once its calls are aborted. The session itself stays. */
  async finish({ backend, calls }: SessionRecord): Promise<void> {
    if (backend?.finish === undefined) return;
    await within(calls.drained(), ABORT_WAIT_MS, this.#parts.clock);
    await backend.finish();
  }

  /**
   * Removes the backend of a session whose sandbox has ended. The session itself stays. The caller holds the lock of its
   * key.
   */
  async dropBackend(record: SessionRecord): Promise<void> {
    // What still runs notices the end of the sandbox by itself.
    await within(record.calls.drained(), ABORT_WAIT_MS, this.#parts.clock);
    const { backend } = record;
    if (record.state !== "ACTIVE" || backend === undefined) return;
    record.backend = undefined;
    await backend.cleanup(true);
  }

  /** Ends a session that can no longer be used. From now on no call finds it. */
  endLater(record: SessionRecord): void {
    if (record.state === "DESTROYING") return;
    this.#parts.registry.remove(record);
    this.track(this.end(record, 0));
  }

  /** Makes {@link settled} wait for work that ends by itself. */
  track(work: Promise<unknown>): void {
    const tracked = work
      .catch((error: unknown) => this.#parts.logger.error({ err: error }, "the end of a session failed"))
      .finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  /** Resolves when no tracked work is left. */
  async settled(): Promise<void> {
    while (this.#work.size > 0) await Promise.all(this.#work);
  }

  /** Cleans up a session's backend and deletes its own sandbox. Tries both, and returns the failure. */
  async #cleanUp({ backend, place }: SessionRecord, why: string): Promise<unknown> {
    let failure: unknown;
    const note = (error: unknown): void => {
      failure ??= error;
    };
    await backend?.finish?.().catch(note);
    // Deleting the sandbox ends the backend inside it as well.
    if (place?.owned) {
      await Promise.all([
        this.#parts.sandboxes.delete(place.sandbox, 0, why).catch(note),
        backend?.cleanup(true).catch(note),
      ]);
    } else await backend?.cleanup(false).catch(note);
    return failure;
  }
}
