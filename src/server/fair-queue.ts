import { untilAborted } from "../base/async.ts";
import type { Call, CallObserver } from "./call.ts";

/** The parts of a call that the queue needs. */
export type QueuedCall = Pick<Call, "principal" | "signal" | "method">;

/** How many calls may have their turn at the same time, and for how long. */
interface Bounds {
  /** For a tenant, while no other tenant makes calls. */
  readonly alone: number;
  /** For all tenants together, while several make calls. Each has at least one. */
  readonly together: number;
  /** The longest turn, in milliseconds. */
  readonly turnMs: number;
}

/** What a call keeps busy until it ends: nothing, tools in a sandbox, or the engine. Each kind has its own turns. */
export type Work = "none" | "tools" | "engine";

const BOUNDS: Readonly<Record<Work, Bounds>> = {
  // A call that takes longer than its turn waits for a sandbox, or transfers much data.
  none: { alone: 32, together: 2, turnMs: 10 },
  tools: { alone: 32, together: 2, turnMs: 1000 },
  engine: { alone: 32, together: 2, turnMs: 1000 },
};

/** How long after its last call a tenant counts as active, in milliseconds. */
const RECENT_MS = 2000;

/** A tenant's calls of one kind. */
interface Lane {
  readonly bounds: Bounds;
  /** Calls in their turn, and the latest end of each turn. Oldest first. */
  readonly running: Map<QueuedCall, number>;
  /** Waiting calls, and the functions that start their turns. Oldest first. */
  readonly waiting: Map<QueuedCall, () => void>;
  /** Whether {@link FairQueue} is about to check the waiting calls. */
  scheduled: boolean;
  /** Fires when the oldest turn is over. */
  timer: NodeJS.Timeout | undefined;
}

interface Tenant {
  lastMs: number;
  readonly lanes: Readonly<Record<Work, Lane>>;
}

/**
 * Shares the event loop and the engine between tenants. An admitted call has a turn, which ends with the call and after
 * 10 ms at most (a second if it keeps something busy). A stream that transfers data after that waits for another turn,
 * and so does an answer. Such a later turn also ends when the stream has nothing to transfer at once. While several
 * tenants make calls, each has few places for its turns. Its other calls wait, and the next one starts only after the
 * event loop has read what arrived from others. So a tenant that makes many calls at once delays only itself.
 */
export class FairQueue implements CallObserver {
  readonly #methodWork: ReadonlyMap<string, Work>;
  /** By name, in the order of their last calls. */
  readonly #tenants = new Map<string, Tenant>();
  /** Calls after their first turn. */
  readonly #continued = new WeakSet<QueuedCall>();
  /** Calls whose work is done after their first turn. They keep nothing busy any more. */
  readonly #answering = new WeakSet<QueuedCall>();
  /** Calls whose later turns are about to end, unless they continue before. */
  readonly #resting = new Set<QueuedCall>();
  #endOfRests: NodeJS.Immediate | undefined;

  /**
   * @param methodWork by `package.Service/Method`, for methods that keep something busy: their turns last at most a
   *   second.
   */
  constructor(methodWork: ReadonlyMap<string, Work> = new Map()) {
    this.#methodWork = methodWork;
  }

  /** Resolves when the turn of a call starts. Undefined: it has started. Rejects if the call ends before. */
  enter(call: QueuedCall): Promise<void> | undefined {
    const name = call.principal?.tenant;
    if (name === undefined) return undefined;
    const nowMs = performance.now();
    const lane = this.#laneOf(call, this.#called(name, nowMs));
    if (lane.waiting.size === 0 && this.#hasPlace(lane, nowMs)) {
      begin(lane, call, nowMs);
      return undefined;
    }
    return this.#wait(call, lane);
  }

  /** Like {@link enter}, for a call that continues. Undefined during its turn. */
  again(call: QueuedCall): Promise<void> | undefined {
    this.#resting.delete(call);
    if (this.#hasTurn(call)) return undefined;
    this.#continued.add(call);
    return this.enter(call);
  }

  /** Like {@link again}, for the only answer of a call: it does not wait for those that keep the same thing busy. */
  answer(call: QueuedCall): Promise<void> | undefined {
    if (!this.#hasTurn(call)) {
      this.ended(call);
      this.#answering.add(call);
    }
    return this.again(call);
  }

  /**
   * Call this after each part that a call transfers. Its turn ends unless the next part follows at once, so that a call
   * that waits for its source or its reader keeps no place. A first turn does not end, nor that of a call that keeps
   * something busy: they are for what the call does besides.
   */
  rest(call: QueuedCall): void {
    if (!this.#continued.has(call) || this.#workOf(call) !== "none") return;
    this.#resting.add(call);
    this.#endOfRests ??= setImmediate(() => {
      this.#endOfRests = undefined;
      for (const each of this.#resting) this.ended(each);
      this.#resting.clear();
    });
  }

  started(): void {}

  ended(call: QueuedCall): void {
    const tenant = this.#tenants.get(call.principal?.tenant ?? "");
    if (tenant !== undefined) this.#end(call, this.#laneOf(call, tenant));
  }

  async #wait(call: QueuedCall, lane: Lane): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    lane.waiting.set(call, resolve);
    this.#schedule(lane);
    try {
      await untilAborted(promise, call.signal);
    } catch (error) {
      lane.waiting.delete(call);
      // Its turn may have just started.
      this.#end(call, lane);
      throw error;
    }
  }

  #end(call: QueuedCall, lane: Lane): void {
    if (lane.running.delete(call)) this.#schedule(lane);
  }

  #hasTurn(call: QueuedCall): boolean {
    const tenant = this.#tenants.get(call.principal?.tenant ?? "");
    const endsMs = tenant && this.#laneOf(call, tenant).running.get(call);
    return endsMs !== undefined && endsMs > performance.now();
  }

  #workOf(call: QueuedCall): Work {
    return this.#answering.has(call) ? "none" : (this.#methodWork.get(call.method) ?? "none");
  }

  #laneOf(call: QueuedCall, { lanes }: Tenant): Lane {
    return lanes[this.#workOf(call)];
  }

  #called(name: string, nowMs: number): Tenant {
    const tenant = this.#tenants.get(name) ?? { lastMs: nowMs, lanes: newLanes() };
    tenant.lastMs = nowMs;
    this.#tenants.delete(name);
    this.#tenants.set(name, tenant);
    return tenant;
  }

  #hasPlace({ running, bounds }: Lane, nowMs: number): boolean {
    for (const [call, endsMs] of running) {
      if (endsMs > nowMs) break;
      running.delete(call);
    }
    for (const [name, { lastMs, lanes }] of this.#tenants) {
      if (lastMs > nowMs - RECENT_MS || Object.values(lanes).some(({ waiting }) => waiting.size > 0)) break;
      this.#tenants.delete(name);
    }
    const tenants = this.#tenants.size;
    return running.size < (tenants > 1 ? Math.max(1, bounds.together / tenants) : bounds.alone);
  }

  #schedule(lane: Lane): void {
    if (lane.waiting.size === 0 || lane.scheduled) return;
    lane.scheduled = true;
    setImmediate(() => {
      lane.scheduled = false;
      this.#beginWaiting(lane);
    });
  }

  #beginWaiting(lane: Lane): void {
    clearTimeout(lane.timer);
    const nowMs = performance.now();
    for (const [call, resume] of lane.waiting) {
      if (!this.#hasPlace(lane, nowMs)) {
        const [firstEndsMs = nowMs] = lane.running.values();
        lane.timer = setTimeout(() => this.#beginWaiting(lane), firstEndsMs - nowMs);
        return;
      }
      lane.waiting.delete(call);
      begin(lane, call, nowMs);
      resume();
    }
  }
}

function newLanes(): Readonly<Record<Work, Lane>> {
  const lane = (bounds: Bounds): Lane => {
    return { bounds, running: new Map(), waiting: new Map(), scheduled: false, timer: undefined };
  };
  return { none: lane(BOUNDS.none), tools: lane(BOUNDS.tools), engine: lane(BOUNDS.engine) };
}

function begin({ running, bounds }: Lane, call: QueuedCall, nowMs: number): void {
  // Delete first, so that it becomes the newest entry even if it had a turn before.
  running.delete(call);
  running.set(call, nowMs + bounds.turnMs);
}
