import type { Logger } from "../base/logger.ts";
import type { Engine, EngineSandbox } from "../engine/port.ts";
import type { SandboxRegistry } from "./registry.ts";
import type { RemovalRetries } from "./removal-retries.ts";
import type { WarmPool } from "./warm-pool.ts";

/**
 * Removes what carries this instance's label and belongs to nothing: what a
 * create of an earlier run left half made, what the engine finished after
 * nobody waited for it any more, warm sandboxes of an earlier run.
 */
export class OrphanReaper {
  readonly #engine: Engine;
  readonly #registry: SandboxRegistry;
  readonly #warmPool: WarmPool;
  readonly #logger: Logger;
  readonly #retries: RemovalRetries;
  readonly #removing = new Set<string>();

  constructor(
    registry: SandboxRegistry,
    warmPool: WarmPool,
    parts: { readonly engine: Engine; readonly logger: Logger; readonly retries: RemovalRetries },
  ) {
    this.#registry = registry;
    this.#warmPool = warmPool;
    this.#engine = parts.engine;
    this.#logger = parts.logger;
    this.#retries = parts.retries;
  }

  /** Removes orphans among what the engine has; what cannot be removed is tried again. */
  reap(present: readonly EngineSandbox[]): void {
    const owned = this.#registry.live();
    const refs = new Set(owned.flatMap(({ phase }) => refOf(phase) ?? []));
    const ids = new Set(owned.filter(({ phase }) => phase.state === "CREATING").map(idOf));
    for (const found of present) {
      const known = refs.has(found.ref) || ids.has(idOf(found)) || this.#warmPool.owns(found);
      if (!known && !this.#removing.has(found.ref) && !this.#retries.has(found.ref)) void this.#remove(found);
    }
  }

  async #remove(found: EngineSandbox): Promise<void> {
    const { ref, sandboxId, generation } = found;
    this.#removing.add(ref);
    try {
      await this.#engine.remove(ref);
      this.#retries.gone(ref);
      this.#logger.info({ ref, sandboxId, generation }, "removed a sandbox that belonged to nothing");
    } catch (error) {
      this.#retries.failed(ref, sandboxId, error, () => this.#remove(found));
    } finally {
      this.#removing.delete(ref);
    }
  }
}

/** The engine's name for what stands behind a sandbox, where it is known. */
function refOf(phase: ReturnType<SandboxRegistry["live"]>[number]["phase"]): string | undefined {
  if ("engine" in phase) return phase.engine.ref;
  return phase.state === "CREATING" ? phase.warmRef : undefined;
}

function idOf(sandbox: {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation: number;
}): string {
  return JSON.stringify([sandbox.owner, sandbox.sandboxId, sandbox.generation]);
}
