import { setTimeout as sleep } from "node:timers/promises";
import { BerthError, hasReason } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineEvent, EngineInfo, EngineSandbox } from "../engine/port.ts";

/** Receives the engine's events. */
export interface EngineFollower {
  onEvent(event: EngineEvent): void;
  /**
   * Called before the engine is asked for all its sandboxes. The returned function gets the answer, which does not
   * include sandboxes created since the call.
   * @param unseen whether events may have been missed since the last sync because the connection was down. Otherwise
   *   events report everything, though some may still be on their way.
   */
  beginSync(unseen: boolean): (present: readonly EngineSandbox[]) => void;
}

/** When callers may retry. */
const RETRY_AFTER_MS = 2_000;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 5_000;
const PING_INTERVAL_MS = 5_000;
/** An engine that takes longer than this to answer `info` counts as unavailable. */
const PING_TIMEOUT_MS = 10_000;
/** All sandboxes are listed once per this many pings, starting with the first, in addition to following events. */
const PINGS_PER_SYNC = 12;

/**
 * Monitors the engine: whether it answers, its capabilities, and its events. Retries a broken connection until
 * {@link stop}.
 */
export class EngineMonitor {
  readonly #engine: Engine;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #listeners = new Set<() => void>();
  #info: EngineInfo;
  #trouble: unknown;
  /** Aborted while the engine does not answer. */
  #lost = new AbortController();

  private constructor(engine: Engine, logger: Logger, info: EngineInfo) {
    this.#engine = engine;
    this.#logger = logger;
    this.#info = info;
  }

  /** @throws `ENGINE_UNAVAILABLE` if the engine does not answer. */
  static async connect(engine: Engine, logger: Logger, signal?: AbortSignal): Promise<EngineMonitor> {
    return new EngineMonitor(engine, logger, await engine.info(signal));
  }

  /** The engine's latest answer to `info`. */
  get info(): EngineInfo {
    return this.#info;
  }

  get available(): boolean {
    return !this.#lost.signal.aborted;
  }

  /** Why the engine did not answer last time, in a sentence for the operator; empty if unknown. */
  get trouble(): string {
    return this.#trouble instanceof BerthError && this.#trouble.reason !== "CANCELED"
      ? this.#trouble.message
      : "";
  }

  /** A signal that is aborted with `ENGINE_UNAVAILABLE` when the engine is unavailable, now or later. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Calls `listener` whenever {@link available} changes. Returns a function to unsubscribe. */
  onAvailabilityChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Follows the engine until {@link stop}. */
  follow(follower: EngineFollower): void {
    this.#run(follower).catch((error: unknown) => {
      if (!this.#stop.signal.aborted) this.#logger.error({ err: error }, "stopped following the engine");
    });
  }

  stop(): void {
    this.#stop.abort();
  }

  async #run(follower: EngineFollower): Promise<void> {
    const { signal } = this.#stop;
    let retryMs = FIRST_RETRY_MS;
    while (!signal.aborted) {
      const round = new AbortController();
      const watch = AbortSignal.any([signal, round.signal]);
      try {
        const events = this.#engine.events(watch)[Symbol.asyncIterator]();
        // Subscribe before listing, so that nothing is missed in between.
        let next = events.next();
        next.catch(() => {});
        this.#info = await this.#engine.info(watch);
        await this.#sync(follower, true, watch);
        this.#setAvailable(true);
        retryMs = FIRST_RETRY_MS;
        const pings = this.#ping(follower, watch);
        pings.catch((error: unknown) => {
          this.#trouble = error;
          round.abort();
        });
        for (let item = await next; !item.done; item = await next) {
          follower.onEvent(item.value);
          next = events.next();
          next.catch(() => {});
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#trouble = error;
        this.#logger.warn({ err: error }, "the engine does not answer; retrying");
      } finally {
        round.abort();
      }
      this.#setAvailable(false);
      await sleep(retryMs, undefined, { signal }).catch(() => {});
      retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
    }
  }

  /** Asks at intervals. Rejects when there is no answer. */
  async #ping(follower: EngineFollower, signal: AbortSignal): Promise<void> {
    for (let pings = 0; !signal.aborted; pings++) {
      await sleep(PING_INTERVAL_MS, undefined, { signal, ref: false });
      try {
        this.#info = await this.#engine.info(AbortSignal.any([signal, AbortSignal.timeout(PING_TIMEOUT_MS)]));
        if (pings % PINGS_PER_SYNC === 0) await this.#sync(follower, false, signal);
      } catch (error) {
        // That this service may open no more files says nothing about the engine.
        if (!hasReason(error, "TOO_MANY_OPERATIONS")) throw error;
      }
    }
  }

  async #sync(follower: EngineFollower, unseen: boolean, signal: AbortSignal): Promise<void> {
    const compare = follower.beginSync(unseen);
    compare(await this.#engine.list(signal));
  }

  #setAvailable(available: boolean): void {
    if (this.available === available) return;
    if (available) {
      this.#lost = new AbortController();
      this.#logger.info({}, "the engine answers again");
    } else {
      this.#lost.abort(
        new BerthError("ENGINE_UNAVAILABLE", "The engine does not answer. Berth keeps retrying.", {
          retryAfterMs: RETRY_AFTER_MS,
        }),
      );
    }
    for (const listener of this.#listeners) listener();
  }
}
