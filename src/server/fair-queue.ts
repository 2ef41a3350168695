import { untilAborted } from "../base/async.ts";
import type { Call, CallObserver } from "./call.ts";

/** What the queue asks of a call. */
export type QueuedCall = Pick<Call, "principal" | "signal" | "method">;

/** How many calls may be in their turn at once, and for how long. */
interface Bounds {
  /** Calls of a tenant while no other tenant calls. */
  readonly alone: number;
  /** Calls of all tenants together while several call; each has one place at least. */
  readonly together: number;
  /** How long a turn is at most, in milliseconds. */
  readonly turnMs: number;
}

/** Most calls: what takes longer than its turn waits for a sandbox, or moves much data. */
const LIGHT: Bounds = { alone: 32, together: 2, turnMs: 10 };
/** Calls that keep the engine and all CPUs at work until they end. */
const HEAVY: Bounds = { alone: 32, together: 2, turnMs: 1000 };

/** How long after its last call a tenant counts as one that calls, in milliseconds. */
const RECENT_MS = 2000;

/** A tenant's calls of one kind. */
interface Lane {
  readonly bounds: Bounds;
  /** Calls in their turn, and when it ends at the latest; oldest first. */
  readonly running: Map<QueuedCall, number>;
  /** What begins the turns of the calls that wait, oldest first. */
  readonly waiting: Map<QueuedCall, () => void>;
  /** Whether {@link FairQueue} is about to look at the waiting calls. */
  scheduled: boolean;
  /** Wakes it when a turn ends by its time. */
  timer: NodeJS.Timeout | undefined;
}

interface Tenant {
  lastMs: number;
  readonly light: Lane;
  readonly heavy: Lane;
}

/**
 * Shares the event loop and the engine between tenants. An admitted call has a
 * turn, which ends with the call, and after 10 ms at most; a stream that moves
 * data after that waits for another turn, and so does an answer. While several
 * tenants call, each has few places for its turns; its other calls wait, and the
 * next begins only after the event loop has looked for what came from others. So
 * what a tenant asks for at once keeps itself waiting, and nobody else.
 */
export class FairQueue implements CallObserver {
  readonly #heavyMethods: ReadonlySet<string>;
  /** By name, in the order of their last calls. */
  readonly #tenants = new Map<string, Tenant>();

  /** @param heavyMethods `package.Service/Method`; their turns last a second at most, and there are fewer. */
  constructor(heavyMethods: ReadonlySet<string> = new Set()) {
    this.#heavyMethods = heavyMethods;
  }

  /** Resolves when the turn of a call begins; undefined: it has started. Rejects when the call ends before. */
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

  /** As {@link enter}, for a call that goes on: undefined while its turn lasts. */
  again(call: QueuedCall): Promise<void> | undefined {
    const tenant = this.#tenants.get(call.principal?.tenant ?? "");
    const endsMs = tenant && this.#laneOf(call, tenant).running.get(call);
    return endsMs !== undefined && endsMs > performance.now() ? undefined : this.enter(call);
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
      // Its turn may have started a moment ago.
      this.#end(call, lane);
      throw error;
    }
  }

  #end(call: QueuedCall, lane: Lane): void {
    if (lane.running.delete(call)) this.#schedule(lane);
  }

  #laneOf({ method }: QueuedCall, { light, heavy }: Tenant): Lane {
    return this.#heavyMethods.has(method) ? heavy : light;
  }

  #called(name: string, nowMs: number): Tenant {
    const tenant = this.#tenants.get(name) ?? { lastMs: nowMs, light: lane(LIGHT), heavy: lane(HEAVY) };
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
    for (const [name, { lastMs, light, heavy }] of this.#tenants) {
      if (lastMs > nowMs - RECENT_MS || light.waiting.size + heavy.waiting.size > 0) break;
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

function lane(bounds: Bounds): Lane {
  return { bounds, running: new Map(), waiting: new Map(), scheduled: false, timer: undefined };
}

function begin({ running, bounds }: Lane, call: QueuedCall, nowMs: number): void {
  // Last, also where its last turn has only just ended.
  running.delete(call);
  running.set(call, nowMs + bounds.turnMs);
}
