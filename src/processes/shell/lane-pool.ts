import { within } from "../../base/async.ts";
import { abortError, BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { Turns } from "../../base/turns.ts";
import type { Engine } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import { Lane, type LaneOwner } from "./lane.ts";

/** Limits on the lanes of a sandbox. */
export interface LanePoolSettings {
  /** Number of idle lanes kept ready. */
  readonly spare: number;
  /** Maximum number of lanes of one sandbox. */
  readonly max: number;
  /** How long lanes beyond the spare ones may be idle before they are closed. */
  readonly idleMs: number;
}

/** How many lanes are opened at the same time. More would only slow the engine down. */
const OPENING_AT_ONCE = 4;
/** How long a start occupies its turn. A start that hangs passes the turn on after this time. */
export const TURN_MS = 1_000;
const FIRST_RECHECK_MS = 200;
const MAX_RECHECK_MS = 10_000;
/**
 * How long a lane must be missing before another is opened in advance. A start slows down the running command, and most
 * lanes are back by then.
 */
const SPARE_AFTER_MS = 20;
/** A sandbox may have one lane for every so many processes of its limit. */
const PIDS_PER_LANE = 16;

interface Waiter {
  resolve(lane: Lane | undefined): void;
}

/** The lanes of one sandbox, which run as its default user. */
export class LanePool implements LaneOwner {
  readonly #engine: Engine;
  readonly #sandbox: LeasedSandbox;
  readonly #settings: LanePoolSettings;
  readonly #logger: Logger;
  readonly #turns: Turns;
  readonly #closing = new AbortController();
  /** Used from the end, so that unneeded lanes age at the front. */
  readonly #idle: { readonly lane: Lane; readonly since: number }[] = [];
  readonly #all = new Set<Lane>();
  readonly #waiters: Waiter[] = [];
  readonly #rechecks = new Map<Lane, NodeJS.Timeout>();
  readonly #max: number;
  #opening = 0;
  /** Cancels the wait for a turn to open lanes in advance. */
  #dropTurn: (() => boolean) | undefined;
  #spareTimer: NodeJS.Timeout | undefined;
  #shrinkTimer: NodeJS.Timeout | undefined;

  /** @param turns queue, shared by all sandboxes, for opening lanes in advance. */
  constructor(
    engine: Engine,
    sandbox: LeasedSandbox,
    settings: LanePoolSettings,
    logger: Logger,
    turns: Turns,
  ) {
    this.#turns = turns;
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#settings = settings;
    this.#logger = logger;
    this.#max = Math.max(
      1,
      Math.min(settings.max, Math.floor(sandbox.spec.resources.pidsLimit / PIDS_PER_LANE)),
    );
    this.#openSpares();
  }

  /** Returns an idle lane, now or as soon as one is freed or opened; undefined if none is to come. */
  async take(signal: AbortSignal): Promise<Lane | undefined> {
    const ready = this.takeIdle();
    if (ready !== undefined) return ready;
    if (this.#all.size + this.#opening >= this.#max && !this.#isAnyComing) return undefined;
    const { promise, resolve } = Promise.withResolvers<Lane | undefined>();
    const waiter: Waiter = { resolve };
    this.#waiters.push(waiter);
    this.#refill();
    const onAbort = (): void => {
      const place = this.#waiters.indexOf(waiter);
      if (place >= 0) this.#waiters.splice(place, 1);
      resolve(undefined);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    const lane = await promise.finally(() => signal.removeEventListener("abort", onAbort));
    if (!signal.aborted) return lane;
    if (lane !== undefined) this.giveBack(lane);
    throw abortError(signal);
  }

  /** Whether {@link takeIdle} would return a lane. */
  get hasIdle(): boolean {
    return this.#idle.length > 0;
  }

  /** Returns an idle lane, if there is one. */
  takeIdle(): Lane | undefined {
    const entry = this.#idle.pop();
    if (entry !== undefined) this.#refill();
    return entry?.lane;
  }

  /** Returns a lane that was not used, or is idle again. */
  giveBack(lane: Lane): void {
    if (lane.state === "idle") this.freed(lane);
  }

  freed(lane: Lane): void {
    this.#forgetRecheck(lane);
    const waiter = this.#waiters.shift();
    if (waiter !== undefined) waiter.resolve(lane);
    else if (this.#closing.signal.aborted) lane.discard();
    else {
      this.#idle.push({ lane, since: performance.now() });
      this.#shrinkTimer ??= setTimeout(() => this.#shrink(), this.#settings.idleMs).unref();
    }
  }

  parked(lane: Lane): void {
    this.#recheckLater(lane, FIRST_RECHECK_MS);
    this.#refill();
  }

  died(lane: Lane): void {
    this.#all.delete(lane);
    this.#forgetRecheck(lane);
    const place = this.#idle.findIndex((entry) => entry.lane === lane);
    if (place >= 0) this.#idle.splice(place, 1);
    this.#refill();
  }

  /** Discards every lane, for a sandbox that has ended. */
  close(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new BerthError("SANDBOX_TERMINATED", "The sandbox has ended."));
    clearTimeout(this.#shrinkTimer);
    clearTimeout(this.#spareTimer);
    this.#dropTurn?.();
    for (const lane of [...this.#all]) lane.discard();
    this.#turnAway();
  }

  /** Resolves all waiters without a lane, so that they start plain jobs. */
  #turnAway(): void {
    for (const waiter of this.#waiters.splice(0)) waiter.resolve(undefined);
  }

  /** Number of lanes that will be idle soon. */
  get #renewing(): number {
    let count = 0;
    for (const { state } of this.#all) if (state === "renewing") count++;
    return count;
  }

  get #isAnyComing(): boolean {
    return this.#opening > 0 || this.#renewing > 0;
  }

  /** Opens lanes for waiters at once, and spare lanes if they are still missing a moment later. */
  #refill(): void {
    if (this.#closing.signal.aborted) return;
    while (this.#isWanted(this.#waiters.length)) void this.#open();
    if (this.#spareTimer !== undefined || !this.#isSpareWanted) return;
    this.#spareTimer = setTimeout(() => {
      this.#spareTimer = undefined;
      this.#openSpares();
    }, SPARE_AFTER_MS).unref();
  }

  get #isSpareWanted(): boolean {
    return this.#isWanted(this.#waiters.length + this.#settings.spare);
  }

  /** Opens missing spare lanes, one after another, when it is the sandbox's turn. */
  #openSpares(): void {
    if (this.#closing.signal.aborted || this.#dropTurn !== undefined || !this.#isSpareWanted) return;
    let hasCome = false;
    const drop = this.#turns.take(async () => {
      hasCome = true;
      this.#dropTurn = undefined;
      if (this.#closing.signal.aborted || !this.#isSpareWanted) return;
      const opened = this.#open();
      this.#openSpares();
      // A sandbox whose shells do not start must not keep the turn from others.
      await within(opened, TURN_MS);
    });
    if (!hasCome) this.#dropTurn = drop;
  }

  /** Whether to open another lane in order to have this many. */
  #isWanted(lanes: number): boolean {
    const wanted = Math.min(lanes - this.#idle.length - this.#renewing, OPENING_AT_ONCE);
    return this.#opening < wanted && this.#all.size + this.#opening < this.#max;
  }

  #open(): Promise<void> {
    this.#opening++;
    return Lane.open(this.#engine, this.#sandbox, this.#sandbox.user, this, this.#closing.signal)
      .then(
        (lane) => {
          this.#opening--;
          this.#all.add(lane);
          if (this.#closing.signal.aborted) lane.discard();
          else if (lane.state === "idle") this.freed(lane);
        },
        (error: unknown) => {
          this.#opening--;
          if (this.#closing.signal.aborted) return;
          this.#logger.debug({ sandboxId: this.#sandbox.sandboxId, err: error }, "cannot open a lane");
          // Waiters start plain jobs. The next job tries to open a lane again.
          this.#turnAway();
        },
      )
      .then(() => {
        if (this.#waiters.length > 0) this.#refill();
        // A lane may stay busy for hours, so do not let anybody wait for one if no other is being opened.
        if (!this.#isAnyComing) this.#turnAway();
      })
      .catch((error: unknown) => this.#logger.error({ err: error }, "cannot refill the lanes of a sandbox"));
  }

  #recheckLater(lane: Lane, delayMs: number): void {
    const timer = setTimeout(() => {
      lane
        .recheck()
        .then(() => {
          if (lane.state === "parked") this.#recheckLater(lane, Math.min(delayMs * 2, MAX_RECHECK_MS));
        })
        .catch(() => lane.discard());
    }, delayMs);
    this.#rechecks.set(lane, timer.unref());
  }

  #forgetRecheck(lane: Lane): void {
    clearTimeout(this.#rechecks.get(lane));
    this.#rechecks.delete(lane);
  }

  /** Closes lanes that have been idle for too long. */
  #shrink(): void {
    this.#shrinkTimer = undefined;
    const now = performance.now();
    while (this.#idle.length > this.#settings.spare) {
      const oldest = this.#idle[0];
      if (oldest === undefined || now - oldest.since < this.#settings.idleMs) break;
      this.#idle.shift();
      oldest.lane.discard();
    }
    if (this.#idle.length > this.#settings.spare) {
      this.#shrinkTimer = setTimeout(() => this.#shrink(), this.#settings.idleMs).unref();
    }
  }
}
