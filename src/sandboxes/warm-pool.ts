import { setTimeout as sleep } from "node:timers/promises";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logger.ts";
import type { Engine, EngineSandbox, Resources } from "../engine/port.ts";
import type { LeasedSandbox, SandboxObserver } from "./lease.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { SandboxSpec } from "./sandbox.ts";

/** How many sandboxes of an image are kept ready. */
export interface WarmPoolTarget {
  readonly image: string;
  readonly count: number;
}

/** How a warm pool stands. */
export interface WarmPoolStatus {
  readonly image: string;
  readonly target: number;
  readonly ready: number;
}

/** A sandbox that was kept ready, and is its claimer's now. */
export interface WarmSandbox {
  readonly engine: EngineSandbox;
  /** The resources it has. */
  readonly resources: Resources;
}

/** Sandboxes started at the same time; more only make the engine slower. */
const STARTING_AT_ONCE = 2;
/** How long no claim has to come before the pool is filled again. */
const CLAIMS_FIRST_MS = 50;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/**
 * Keeps started sandboxes ready to be claimed, each with the lanes opened, and
 * starts new ones in place of those that were claimed or ended. They are made
 * as a sandbox is that names nothing but its image, under ids of their own: a
 * claim without an id of its caller takes the sandbox with its id.
 */
export class WarmPool {
  readonly #engine: Engine;
  readonly #observer: SandboxObserver;
  readonly #logger: Logger;
  readonly #retries: RemovalRetries;
  readonly #spec: (image: string) => SandboxSpec;
  readonly #pools: readonly ImagePool[];
  readonly #closing = new AbortController();
  /** Ids of those being started. */
  readonly #starting = new Set<string>();
  /** Starts under way, and removals: what a stop waits for. */
  readonly #work = new Set<Promise<void>>();

  /** @param spec what a sandbox is that names nothing but its image. */
  constructor(
    targets: readonly WarmPoolTarget[],
    spec: (image: string) => SandboxSpec,
    parts: {
      readonly engine: Engine;
      readonly observer: SandboxObserver;
      readonly logger: Logger;
      readonly retries: RemovalRetries;
    },
  ) {
    this.#engine = parts.engine;
    this.#observer = parts.observer;
    this.#logger = parts.logger;
    this.#retries = parts.retries;
    this.#spec = spec;
    this.#pools = targets.map(({ image, count }) => ({ image, target: count, ready: [], starting: 0 }));
  }

  /** Begins to fill the pools. */
  start(): void {
    for (const pool of this.#pools) this.#fill(pool);
  }

  /** A ready sandbox that can be made into what the spec asks for; undefined where there is none. */
  claim(spec: SandboxSpec): WarmSandbox | undefined {
    const pool = this.#pools.find(({ image }) => image === spec.image);
    if (pool === undefined || !canBecome(this.#spec(pool.image), spec)) return undefined;
    if (spec.mounts.length > 0 && !pool.ready[0]?.takesMounts) return undefined;
    const engine = pool.ready.shift();
    this.#fillAfter(pool);
    return engine && { engine, resources: this.#spec(pool.image).resources };
  }

  /** Takes a sandbox back that was claimed and not used. */
  giveBack({ engine }: WarmSandbox, image: string): void {
    const pool = this.#pools.find((candidate) => candidate.image === image);
    if (pool === undefined || this.#closing.signal.aborted) this.#track(this.#remove(engine));
    else pool.ready.unshift(engine);
  }

  /** Whether what the engine has is one of these, ready or being started. */
  owns({ ref, sandboxId }: EngineSandbox): boolean {
    return this.#starting.has(sandboxId) || this.refs().includes(ref);
  }

  /** Forgets a sandbox that ended while it waited; returns whether it was one of these. */
  lost(ref: string): boolean {
    for (const pool of this.#pools) {
      const place = pool.ready.findIndex((sandbox) => sandbox.ref === ref);
      if (place < 0) continue;
      const [sandbox] = pool.ready.splice(place, 1);
      if (sandbox !== undefined) this.#track(this.#remove(sandbox));
      this.#fill(pool);
      return true;
    }
    return false;
  }

  /** The engine's names of those that are ready. */
  refs(): string[] {
    return this.#pools.flatMap(({ ready }) => ready.map(({ ref }) => ref));
  }

  status(): WarmPoolStatus[] {
    return this.#pools.map(({ image, target, ready }) => ({ image, target, ready: ready.length }));
  }

  /** Starts no more, and removes those that are ready. */
  async stop(): Promise<void> {
    this.#closing.abort();
    for (const pool of this.#pools) {
      for (const sandbox of pool.ready.splice(0)) this.#track(this.#remove(sandbox));
    }
    while (this.#work.size > 0) await Promise.all(this.#work);
  }

  /** A start takes the engine's time from claims: while sandboxes are ready, those that come at once go first. */
  #fillAfter(pool: ImagePool): void {
    clearTimeout(pool.pause);
    if (pool.ready.length === 0) this.#fill(pool);
    else pool.pause = setTimeout(() => this.#fill(pool), CLAIMS_FIRST_MS).unref();
  }

  #fill(pool: ImagePool): void {
    while (
      !this.#closing.signal.aborted &&
      pool.starting < STARTING_AT_ONCE &&
      pool.ready.length + pool.starting < pool.target
    ) {
      pool.starting++;
      this.#track(this.#startOne(pool));
    }
  }

  async #startOne(pool: ImagePool): Promise<void> {
    const { signal } = this.#closing;
    for (let retryMs = FIRST_RETRY_MS; !signal.aborted; retryMs = Math.min(retryMs * 2, MAX_RETRY_MS)) {
      const identity = { sandboxId: newId("sbx"), generation: 1, owner: POOL_OWNER };
      this.#starting.add(identity.sandboxId);
      try {
        const spec = this.#spec(pool.image);
        await this.#engine.ensureImage(spec.image, { signal });
        const engine = await this.#engine.create(
          { ...spec, ...identity, mounts: [], takesMounts: true },
          signal,
        );
        this.#observer.ready(leasedOf(engine, spec));
        pool.starting--;
        if (signal.aborted) return await this.#remove(engine);
        pool.ready.push(engine);
        return this.#fill(pool);
      } catch (error) {
        if (signal.aborted) break;
        this.#logger.warn(
          { image: pool.image, err: error },
          "a sandbox of the warm pool could not be started; trying again",
        );
        await sleep(retryMs, undefined, { signal, ref: false }).catch(() => {});
      } finally {
        this.#starting.delete(identity.sandboxId);
      }
    }
    pool.starting--;
  }

  async #remove(engine: EngineSandbox): Promise<void> {
    this.#observer.ending(leasedOf(engine, this.#spec("")));
    await this.#engine.remove(engine.ref).then(
      () => this.#retries.gone(engine.ref),
      (error: unknown) =>
        this.#retries.failed(engine.ref, engine.sandboxId, error, () => this.#remove(engine)),
    );
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}

/** Whose label a waiting sandbox carries: nobody's yet. */
export const POOL_OWNER = "warm-pool";

interface ImagePool {
  readonly image: string;
  readonly target: number;
  /** Oldest first. */
  readonly ready: EngineSandbox[];
  starting: number;
  /** Until it is filled again. */
  pause?: NodeJS.Timeout;
}

/** Whether a started sandbox can serve: what cannot be changed any more is as asked. Environment, limits and mounts can. */
function canBecome(made: SandboxSpec, asked: SandboxSpec): boolean {
  return (
    asked.workingDir === made.workingDir &&
    asked.user === made.user &&
    asked.network === made.network &&
    asked.runtime === made.runtime &&
    asked.resources.diskBytes === made.resources.diskBytes
  );
}

/** What a sandbox of the pool is to those who work in it. */
export function leasedOf(engine: EngineSandbox, spec: SandboxSpec): LeasedSandbox {
  const { ref, sandboxId, generation, owner } = engine;
  return { ref, sandboxId, generation, owner, spec, user: spec.user === "" ? engine.user : spec.user };
}
