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

/** The state of a warm pool. */
export interface WarmPoolStatus {
  readonly image: string;
  readonly target: number;
  readonly ready: number;
}

/** A sandbox that was kept ready and has been claimed. */
export interface WarmSandbox {
  readonly engine: EngineSandbox;
  /** The resources it has now. */
  readonly resources: Resources;
}

/** Sandboxes of an image started at the same time; more only make the engine slower. */
const MAX_STARTING = 2;
/** The pool is filled again once no claim has come for this long. */
const REFILL_DELAY_MS = 50;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

interface Parts {
  readonly engine: Engine;
  readonly observer: SandboxObserver;
  readonly logger: Logger;
  readonly retries: RemovalRetries;
  /** The spec of a sandbox that names nothing but its image. */
  readonly specOf: (image: string) => SandboxSpec;
}

/**
 * Keeps started sandboxes ready to be claimed, each with the lanes opened, and
 * starts new ones in place of those that were claimed or ended. Each is made
 * from a spec that names nothing but the image, under an id of its own: a claim
 * whose caller names no id takes the sandbox with its id.
 */
export class WarmPool {
  readonly #parts: Parts;
  readonly #pools: readonly ImagePool[];
  readonly #closing = new AbortController();
  /** Ids of those being started. */
  readonly #starting = new Set<string>();
  /** Starts and removals under way: what a stop waits for. */
  readonly #work = new Set<Promise<void>>();

  constructor(targets: readonly WarmPoolTarget[], parts: Parts) {
    this.#parts = parts;
    this.#pools = targets.map(({ image, count }) => ({ image, target: count, ready: [], starting: 0 }));
  }

  /** Starts to fill the pools. */
  start(): void {
    for (const pool of this.#pools) this.#fill(pool);
  }

  /** A ready sandbox that can be made into what the spec asks for; undefined where there is none. */
  claim(spec: SandboxSpec): WarmSandbox | undefined {
    const pool = this.#pools.find(({ image }) => image === spec.image);
    if (pool === undefined || !canBecome(this.#parts.specOf(pool.image), spec)) return undefined;
    if (spec.mounts.length > 0 && !pool.ready[0]?.takesMounts) return undefined;
    const engine = pool.ready.shift();
    this.#fillAfter(pool);
    return engine && { engine, resources: this.#parts.specOf(pool.image).resources };
  }

  /** Takes back a sandbox that was claimed and not used. */
  giveBack({ engine }: WarmSandbox, image: string): void {
    const pool = this.#pools.find((candidate) => candidate.image === image);
    if (pool === undefined || this.#closing.signal.aborted) this.#track(this.#remove(engine));
    else pool.ready.unshift(engine);
  }

  /** Whether what the engine has is one of these, ready or being started. */
  owns({ ref, sandboxId }: EngineSandbox): boolean {
    return this.#starting.has(sandboxId) || this.refs().includes(ref);
  }

  /** Drops a sandbox that ended while it waited; returns whether it was one of these. */
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

  /** Starts no more sandboxes and removes those that are ready. */
  async stop(): Promise<void> {
    this.#closing.abort();
    for (const pool of this.#pools) {
      for (const sandbox of pool.ready.splice(0)) this.#track(this.#remove(sandbox));
    }
    while (this.#work.size > 0) await Promise.all(this.#work);
  }

  /** A start takes the engine's time from claims: while sandboxes are ready, a burst of claims goes first. */
  #fillAfter(pool: ImagePool): void {
    clearTimeout(pool.pause);
    if (pool.ready.length === 0) this.#fill(pool);
    else pool.pause = setTimeout(() => this.#fill(pool), REFILL_DELAY_MS).unref();
  }

  #fill(pool: ImagePool): void {
    while (
      !this.#closing.signal.aborted &&
      pool.starting < MAX_STARTING &&
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
        const spec = this.#parts.specOf(pool.image);
        await this.#parts.engine.ensureImage(spec.image, { signal });
        const engine = await this.#parts.engine.create(
          { ...spec, ...identity, mounts: [], takesMounts: true },
          signal,
        );
        this.#parts.observer.ready(leasedOf(engine, spec));
        pool.starting--;
        if (signal.aborted) return await this.#remove(engine);
        pool.ready.push(engine);
        return this.#fill(pool);
      } catch (error) {
        if (signal.aborted) break;
        this.#parts.logger.warn(
          { image: pool.image, err: error },
          "a sandbox of the warm pool could not be started; retrying",
        );
        await sleep(retryMs, undefined, { signal, ref: false }).catch(() => {});
      } finally {
        this.#starting.delete(identity.sandboxId);
      }
    }
    pool.starting--;
  }

  async #remove(engine: EngineSandbox): Promise<void> {
    this.#parts.observer.ending(leasedOf(engine, this.#parts.specOf("")));
    await this.#parts.engine.remove(engine.ref).then(
      () => this.#parts.retries.gone(engine.ref),
      (error: unknown) =>
        this.#parts.retries.failed(engine.ref, engine.sandboxId, error, () => this.#remove(engine)),
    );
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}

/** The owner in the label of a sandbox that nobody has claimed yet. */
export const POOL_OWNER = "warm-pool";

interface ImagePool {
  readonly image: string;
  readonly target: number;
  /** Oldest first. */
  readonly ready: EngineSandbox[];
  starting: number;
  /** Runs until the pool is filled again. */
  pause?: NodeJS.Timeout;
}

/** Whether a started sandbox can serve: everything but environment, limits and mounts is fixed by now. */
function canBecome(made: SandboxSpec, asked: SandboxSpec): boolean {
  return (
    asked.workingDir === made.workingDir &&
    asked.user === made.user &&
    asked.network === made.network &&
    asked.runtime === made.runtime &&
    asked.resources.diskBytes === made.resources.diskBytes
  );
}

/** A sandbox of the pool as its operations see it. */
export function leasedOf(engine: EngineSandbox, spec: SandboxSpec): LeasedSandbox {
  const { ref, sandboxId, generation, owner } = engine;
  return { ref, sandboxId, generation, owner, spec, user: spec.user === "" ? engine.user : spec.user };
}
