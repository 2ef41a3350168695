import { untilAborted } from "../base/async.ts";
import type { Call, CallObserver } from "./call.ts";

/** What the queue asks of a call. */
export type QueuedCall = Pick<Call, "principal" | "signal">;

/** How many calls of a tenant may be in their turn at once while no other tenant calls. */
const PLACES_ALONE = 32;
/** How many calls may be in their turn at once while several tenants call; each tenant has one place at least. */
const PLACES_TOGETHER = 4;
/** How long a turn is at most, in milliseconds. What takes longer waits for a sandbox, or moves much data. */
const TURN_MS = 20;
/** How long after its last call a tenant counts as one that calls, in milliseconds. */
const RECENT_MS = 2000;

/** The calls of one tenant. */
interface Tenant {
  lastMs: number;
  /** Calls in their turn, and when it ends at the latest; oldest first. */
  readonly running: Map<QueuedCall, number>;
  /** What begins the turns of the calls that wait, oldest first. */
  readonly waiting: Map<QueuedCall, () => void>;
  /** Whether {@link FairQueue} is about to look at the waiting calls. */
  scheduled: boolean;
  /** Wakes it when a turn ends by its time. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Shares the event loop between tenants. An admitted call has a turn, which ends
 * with the call, and after 20 ms at most; a stream that moves data after that
 * waits for another turn. While several tenants call, each has a few places for
 * its turns; its other calls wait, and the next begins only after the event loop
 * has looked for what came from others. So what a tenant asks for at once keeps
 * itself waiting, and nobody else.
 */
export class FairQueue implements CallObserver {
  /** By name, in the order of their last calls. */
  readonly #tenants = new Map<string, Tenant>();

  /** Resolves when the turn of a call begins; undefined: it has begun. Rejects when the call ends before. */
  enter(call: QueuedCall): Promise<void> | undefined {
    const name = call.principal?.tenant;
    if (name === undefined) return undefined;
    const nowMs = performance.now();
    const tenant = this.#called(name, nowMs);
    if (tenant.waiting.size === 0 && this.#hasPlace(tenant, nowMs)) {
      begin(tenant, call, nowMs);
      return undefined;
    }
    return this.#wait(call, tenant);
  }

  /** As {@link enter}, for a call that goes on: undefined while its turn lasts. */
  again(call: QueuedCall): Promise<void> | undefined {
    const endsMs = this.#tenants.get(call.principal?.tenant ?? "")?.running.get(call) ?? 0;
    return endsMs > performance.now() ? undefined : this.enter(call);
  }

  started(): void {}

  ended(call: QueuedCall): void {
    const tenant = this.#tenants.get(call.principal?.tenant ?? "");
    if (tenant?.running.delete(call)) this.#schedule(tenant);
  }

  async #wait(call: QueuedCall, tenant: Tenant): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    tenant.waiting.set(call, resolve);
    this.#schedule(tenant);
    try {
      await untilAborted(promise, call.signal);
    } catch (error) {
      // Its turn may have begun a moment ago.
      tenant.waiting.delete(call);
      if (tenant.running.delete(call)) this.#schedule(tenant);
      throw error;
    }
  }

  #called(name: string, nowMs: number): Tenant {
    const tenant = this.#tenants.get(name) ?? {
      ...{ lastMs: nowMs, running: new Map(), waiting: new Map(), scheduled: false, timer: undefined },
    };
    tenant.lastMs = nowMs;
    this.#tenants.delete(name);
    this.#tenants.set(name, tenant);
    return tenant;
  }

  #hasPlace({ running }: Tenant, nowMs: number): boolean {
    for (const [call, endsMs] of running) {
      if (endsMs > nowMs) break;
      running.delete(call);
    }
    for (const [name, { lastMs, waiting }] of this.#tenants) {
      if (lastMs > nowMs - RECENT_MS || waiting.size > 0) break;
      this.#tenants.delete(name);
    }
    const tenants = this.#tenants.size;
    return running.size < (tenants > 1 ? Math.max(1, PLACES_TOGETHER / tenants) : PLACES_ALONE);
  }

  #schedule(tenant: Tenant): void {
    if (tenant.waiting.size === 0 || tenant.scheduled) return;
    tenant.scheduled = true;
    setImmediate(() => {
      tenant.scheduled = false;
      this.#beginWaiting(tenant);
    });
  }

  #beginWaiting(tenant: Tenant): void {
    clearTimeout(tenant.timer);
    const nowMs = performance.now();
    for (const [call, resume] of tenant.waiting) {
      if (!this.#hasPlace(tenant, nowMs)) {
        const [firstEndsMs = nowMs] = tenant.running.values();
        tenant.timer = setTimeout(() => this.#beginWaiting(tenant), firstEndsMs - nowMs);
        return;
      }
      tenant.waiting.delete(call);
      begin(tenant, call, nowMs);
      resume();
    }
  }
}

function begin({ running }: Tenant, call: QueuedCall, nowMs: number): void {
  // Last, also where its last turn has only just ended.
  running.delete(call);
  running.set(call, nowMs + TURN_MS);
}
