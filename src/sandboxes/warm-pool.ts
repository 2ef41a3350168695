import { rest } from "../base/async.ts";
import { BerthError } from "../base/errors.ts";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineSandbox, Resources } from "../engine/port.ts";
import type { EarlyEnds } from "./engine-ends.ts";
import type { EngineMonitor } from "./engine-monitor.ts";
import { type LeasedSandbox, leasedOf, type SandboxObserver } from "./lease.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { SandboxSpec } from "./sandbox.ts";
import { engineNetwork, fitSpec, type RequestedSpec, resolveSpec, type SandboxDefaults } from "./spec.ts";

/** How many sandboxes of an image to keep ready. */
export interface WarmPoolTarget {
  readonly image: string;
  readonly count: number;
}

/** How many sandboxes to keep ready with a started session of this type. */
export interface WarmSessionTarget {
  readonly resourceType: string;
  readonly count: number;
}

/** What was prepared in a sandbox before its claim, for instance a desktop. */
export interface Prepared {
  /** Whether it can still be used. */
  readonly alive: boolean;
  /**
   * Ends it. Idempotent; never rejects. @param sandboxEnds whether the sandbox, with everything in it, is ending
   * anyway.
   */
  cleanup(sandboxEnds: boolean): Promise<void>;
}

/** A warm pool of sandboxes that are prepared for sessions of one type. */
export interface PreparedPool {
  readonly resourceType: string;
  readonly count: number;
  readonly spec: RequestedSpec;
  /** Prepares a sandbox of the pool. A failure leaves nothing behind. */
  prepare(sandbox: LeasedSandbox, signal: AbortSignal): Promise<Prepared>;
}

/** The state of a warm pool. */
export interface WarmPoolStatus {
  readonly image: string;
  /** The type of session that its sandboxes are prepared for; empty: none. */
  readonly resourceType: string;
  readonly target: number;
  readonly ready: number;
  /** Why the last start of a sandbox failed; empty once one has succeeded. */
  readonly problem: string;
}

/** A sandbox that was kept ready and has been claimed. */
export interface WarmSandbox {
  readonly engine: EngineSandbox;
  /** Its current resources. */
  readonly resources: Resources;
  /** What is prepared in it. */
  readonly prepared: Prepared | undefined;
  /** Returns it to the pool, unused. */
  giveBack(): void;
}

/**
 * How many sandboxes of an image to start at the same time. More would only slow the engine down. Two would take both
 * processors of a small machine from commands that run meanwhile.
 */
const MAX_STARTING = 2;
const SMALL_MACHINE_CPUS = 2;
/** The pool is refilled once there has been no claim for this long. */
const REFILL_DELAY_MS = 50;
/** How many characters of the error of a failed start to keep. */
const MAX_PROBLEM = 500;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

interface Parts {
  readonly engine: Engine;
  readonly monitor: Pick<EngineMonitor, "info">;
  readonly observer: SandboxObserver;
  readonly logger: Logger;
  readonly retries: RemovalRetries;
  readonly earlyEnds: EarlyEnds;
  readonly defaults: SandboxDefaults;
}

/**
 * Keeps started sandboxes ready to be claimed, each with open lanes, and starts new ones to replace those that were
 * claimed or have ended. Each is created from its pool's spec under a new id. A claim without a requested id keeps that
 * id.
 */
export class WarmPool {
  readonly #parts: Parts;
  readonly #pools: Pool[];
  readonly #closing = new AbortController();
  /** Ids of sandboxes that are being started. */
  readonly #starting = new Set<string>();
  /** Starts and removals in progress, which a stop waits for. */
  readonly #work = new Set<Promise<void>>();

  constructor(targets: readonly WarmPoolTarget[], parts: Parts) {
    this.#parts = parts;
    this.#pools = targets.map(({ image, count }) => ({
      asked: () => ({ image }),
      resourceType: "",
      target: count,
      prepare: undefined,
      ready: [],
      starting: 0,
    }));
  }

  /** Adds a pool. Its spec is adapted to what the engine supports. Call it before {@link start}. */
  add({ resourceType, spec, count, prepare }: PreparedPool): void {
    const asked = (): RequestedSpec => fitSpec(spec, this.#parts.monitor.info);
    this.#pools.push({ asked, resourceType, target: count, prepare, ready: [], starting: 0 });
  }

  /** Starts filling the pools. */
  start(): void {
    for (const pool of this.#pools) this.#fill(pool);
  }

  /**
   * Claims a ready sandbox that can be adapted to the spec; undefined if there is none.
   * @param resourceType the type of session that it should be prepared for; empty: none.
   */
  claim(spec: SandboxSpec, resourceType = ""): WarmSandbox | undefined {
    for (const pool of this.#pools) {
      if (pool.resourceType !== resourceType) continue;
      const [first] = pool.ready;
      // They differ in nothing but their limits.
      if (first === undefined || !canBecome(first.spec, spec)) continue;
      this.#dropDead(pool);
      if (spec.mounts.length > 0 && !pool.ready[0]?.engine.takesMounts) {
        this.#fillAfter(pool);
        continue;
      }
      const warm = pool.ready.shift();
      this.#fillAfter(pool);
      if (warm === undefined) continue;
      return { ...warm, resources: warm.spec.resources, giveBack: () => this.#giveBack(pool, warm) };
    }
    return undefined;
  }

  /** Whether one of the engine's sandboxes belongs to a pool, ready or being started. */
  owns({ ref, sandboxId }: EngineSandbox): boolean {
    return this.#starting.has(sandboxId) || this.refs().includes(ref);
  }

  /** Drops a sandbox that ended before it was claimed. */
  lost(ref: string): void {
    for (const pool of this.#pools) {
      const place = pool.ready.findIndex(({ engine }) => engine.ref === ref);
      if (place < 0) continue;
      for (const warm of pool.ready.splice(place, 1)) this.#track(this.#remove(warm));
      this.#fill(pool);
    }
  }

  /** Refs of the ready sandboxes. */
  refs(): string[] {
    return this.#pools.flatMap(({ ready }) => ready.map(({ engine }) => engine.ref));
  }

  status(): WarmPoolStatus[] {
    return this.#pools.map((pool) => {
      const { resourceType, target, ready, problem = "" } = pool;
      return { image: this.#imageOf(pool), resourceType, target, ready: ready.length, problem };
    });
  }

  /** Stops starting sandboxes, and removes the ready ones. */
  async stop(): Promise<void> {
    this.#closing.abort();
    for (const pool of this.#pools) {
      for (const warm of pool.ready.splice(0)) this.#track(this.#remove(warm));
    }
    while (this.#work.size > 0) await Promise.all(this.#work);
  }

  #imageOf({ asked }: Pool): string {
    return asked().image ?? this.#parts.defaults.image;
  }

  #giveBack(pool: Pool, warm: Warm): void {
    if (this.#closing.signal.aborted) this.#track(this.#remove(warm));
    else pool.ready.unshift(warm);
  }

  /** Drops sandboxes whose prepared session has ended. */
  #dropDead(pool: Pool): void {
    const dead = pool.ready.filter(({ prepared }) => prepared?.alive === false);
    if (dead.length === 0) return;
    pool.ready = pool.ready.filter((warm) => !dead.includes(warm));
    for (const warm of dead) this.#track(this.#remove(warm));
  }

  /**
   * Fills the pool after a pause: starts slow down claims, so a burst of claims goes first while sandboxes are ready.
   */
  #fillAfter(pool: Pool): void {
    clearTimeout(pool.pause);
    if (pool.ready.length === 0) this.#fill(pool);
    else pool.pause = setTimeout(() => this.#fill(pool), REFILL_DELAY_MS).unref();
  }

  #fill(pool: Pool): void {
    const maxStarting = this.#parts.monitor.info.cpus > SMALL_MACHINE_CPUS ? MAX_STARTING : 1;
    while (
      !this.#closing.signal.aborted &&
      pool.starting < maxStarting &&
      pool.ready.length + pool.starting < pool.target
    ) {
      pool.starting++;
      this.#track(this.#startOne(pool));
    }
  }

  async #startOne(pool: Pool): Promise<void> {
    const { signal } = this.#closing;
    for (let retryMs = FIRST_RETRY_MS; !signal.aborted; retryMs = Math.min(retryMs * 2, MAX_RETRY_MS)) {
      const sandboxId = newId("sbx");
      this.#starting.add(sandboxId);
      try {
        using ends = this.#parts.earlyEnds.watch(sandboxId);
        const warm = await this.#make(pool, sandboxId, signal);
        const ended = ends.errorOf(warm.engine.ref);
        if (ended !== undefined) {
          await this.#remove(warm);
          throw ended;
        }
        pool.starting--;
        if (signal.aborted) return await this.#remove(warm);
        pool.problem = "";
        pool.ready.push(warm);
        return this.#fill(pool);
      } catch (error) {
        if (signal.aborted) break;
        pool.problem = (
          error instanceof BerthError ? error.message : "Berth failed; the log says why."
        ).slice(0, MAX_PROBLEM);
        const { resourceType } = pool;
        this.#parts.logger.warn(
          { image: this.#imageOf(pool), ...(resourceType !== "" && { resourceType }), err: error },
          "a sandbox of the warm pool could not be started; retrying",
        );
        await rest(retryMs, signal);
      } finally {
        this.#starting.delete(sandboxId);
      }
    }
    pool.starting--;
  }

  async #make(pool: Pool, sandboxId: string, signal: AbortSignal): Promise<Warm> {
    const { engine, observer, defaults, monitor } = this.#parts;
    // With the engine's limits of this moment: a machine can lose memory and processors while the service runs.
    const spec = resolveSpec(pool.asked(), defaults, monitor.info);
    const identity = { sandboxId, generation: 1, owner: POOL_OWNER };
    const wanted = {
      ...{ ...spec, ...identity, network: engineNetwork(spec), mounts: [], takesMounts: true },
      ...(observer.firstShell && { firstShell: observer.firstShell }),
    };
    await engine.ensureImage(spec.image, { sandbox: wanted, signal });
    const made = await engine.create(wanted, signal);
    const leased = leasedOf(made, spec);
    observer.ready(leased);
    try {
      return { engine: made, spec, prepared: await pool.prepare?.(leased, signal) };
    } catch (error) {
      await this.#remove({ engine: made, spec, prepared: undefined });
      throw error;
    }
  }

  async #remove(warm: Warm): Promise<void> {
    const { engine, spec, prepared } = warm;
    this.#parts.observer.ending(leasedOf(engine, spec));
    const cleanup = prepared?.cleanup(true);
    await this.#parts.engine.remove(engine.ref).then(
      () => this.#parts.retries.gone(engine.ref),
      (error: unknown) =>
        this.#parts.retries.failed(engine.ref, engine.sandboxId, error, () => this.#remove(warm)),
    );
    await cleanup;
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}

/** The owner in the label of a sandbox that nobody has claimed yet. */
export const POOL_OWNER = "warm-pool";

interface Warm {
  readonly engine: EngineSandbox;
  /** With its current resources. */
  readonly spec: SandboxSpec;
  readonly prepared: Prepared | undefined;
}

interface Pool {
  readonly asked: () => RequestedSpec;
  readonly resourceType: string;
  readonly target: number;
  readonly prepare: PreparedPool["prepare"] | undefined;
  /** Oldest first. */
  ready: Warm[];
  starting: number;
  problem?: string;
  /** Timer until the pool is refilled. */
  pause?: NodeJS.Timeout;
}

/** Whether a started sandbox can be adapted: everything but environment, limits and mounts is fixed by now. */
function canBecome(made: SandboxSpec, asked: SandboxSpec): boolean {
  return (
    asked.image === made.image &&
    asked.workingDir === made.workingDir &&
    asked.user === made.user &&
    engineNetwork(asked) === engineNetwork(made) &&
    asked.runtime === made.runtime &&
    asked.resources.diskBytes === made.resources.diskBytes
  );
}
