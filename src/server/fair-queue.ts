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

/** What a call keeps at work until it ends: nothing, tools in a sandbox, or the engine. Each has turns of its own. */
export type Work = "none" | "tools" | "engine";

const BOUNDS: Readonly<Record<Work, Bounds>> = {
  // What takes longer than its turn waits for a sandbox, or moves much data.
  none: { alone: 32, together: 2, turnMs: 10 },
  tools: { alone: 32, together: 2, turnMs: 1000 },
  engine: { alone: 32, together: 2, turnMs: 1000 },
};

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
  readonly lanes: Readonly<Record<Work, Lane>>;
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
  readonly #methodWork: ReadonlyMap<string, Work>;
  /** By name, in the order of their last calls. */
  readonly #tenants = new Map<string, Tenant>();

  /** @param methodWork by `package.Service/Method`, of those that keep something at work: their turns last a second at most. */
  constructor(methodWork: ReadonlyMap<string, Work> = new Map()) {
    this.#methodWork = methodWork;
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

  #laneOf({ method }: QueuedCall, { lanes }: Tenant): Lane {
    return lanes[this.#methodWork.get(method) ?? "none"];
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
  // Last, also where its last turn has only just ended.
  running.delete(call);
  running.set(call, nowMs + bounds.turnMs);
}
