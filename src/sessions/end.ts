import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import { atMost } from "../base/until.ts";
import type { SessionMaker } from "./create.ts";
import { type SessionRecord, sessionLost } from "./record.ts";
import type { SessionRegistry } from "./registry.ts";
import type { SessionJournal } from "./store.ts";

/** How long calls have to let go once they were aborted. */
const ABORT_WAIT_MS = 5_000;

/** Ends sessions, and keeps account of ends that nobody waits for but a stop. */
export class SessionEnder {
  readonly #registry: SessionRegistry;
  readonly #maker: SessionMaker;
  readonly #journal: SessionJournal;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #work = new Set<Promise<unknown>>();

  constructor(
    registry: SessionRegistry,
    maker: SessionMaker,
    parts: { readonly journal: SessionJournal; readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#registry = registry;
    this.#maker = maker;
    this.#journal = parts.journal;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /**
   * Ends a session: lets calls finish, ends them, takes everything away. It is
   * gone afterwards, whatever fails. Returns what failed; never rejects. The
   * lock of the session's key is held, or nobody finds the session any more.
   */
  async end(record: SessionRecord, graceMs: number): Promise<unknown> {
    record.state = "DESTROYING";
    record.stopTimer();
    const { calls, sessionId } = record;
    if (calls.count > 0) {
      await atMost(calls.drained(), graceMs, this.#clock);
      calls.abortAll(sessionLost(record, "it was destroyed"));
      await atMost(calls.drained(), ABORT_WAIT_MS, this.#clock);
    }
    const failure = await this.#maker.takeAway(record);
    if (failure !== undefined) {
      this.#logger.warn({ sessionId, err: failure }, "a session was not cleaned up; it is gone all the same");
    }
    this.#registry.remove(record);
    this.#journal.forget(sessionId);
    return failure;
  }

  /** Ends a session that cannot be used any more, and is not found from now on. */
  endLater(record: SessionRecord): void {
    if (record.state === "DESTROYING") return;
    this.#registry.remove(record);
    this.track(this.end(record, 0));
  }

  /** Takes account of work that ends by itself. */
  track(work: Promise<unknown>): void {
    const tracked = work
      .catch((error: unknown) => this.#logger.error({ err: error }, "the end of a session failed"))
      .finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  /** Resolves when nothing is under way. */
  async settled(): Promise<void> {
    while (this.#work.size > 0) await Promise.all(this.#work);
  }
}
