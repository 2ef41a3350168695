import type { BerthError } from "../base/errors.ts";
import type { EngineSandbox, FirstShell } from "../engine/port.ts";
import type { SandboxSpec } from "./sandbox.ts";

/** What an operation needs to know about its sandbox. */
export interface LeasedSandbox {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /** The engine's ref. */
  readonly ref: string;
  readonly spec: SandboxSpec;
  /** The user that commands run as; empty: the engine's default. */
  readonly user: string;
}

/**
 * One of the engine's sandboxes in the form that operations need.
 * @param name whose it is. Default: what its labels say, which for a claimed one is still the warm pool's.
 */
export function leasedOf(
  engine: EngineSandbox,
  spec: SandboxSpec,
  { owner, sandboxId, generation }: Pick<LeasedSandbox, "owner" | "sandboxId" | "generation"> = engine,
): LeasedSandbox {
  const user = spec.user === "" ? engine.user : spec.user;
  return { sandboxId, generation, owner, ref: engine.ref, spec, user };
}

/**
 * The right to use a sandbox. While it is held, the sandbox does not become idle, and a delete waits for it up to its
 * grace, unless the lease only watches. Release it on every path.
 */
export interface Lease extends Disposable {
  readonly sandbox: LeasedSandbox;
  /** Aborted with `SANDBOX_DELETED` or `SANDBOX_TERMINATED` when the operation must end now. */
  readonly signal: AbortSignal;
  /** Idempotent. */
  release(): void;
}

/** Options of a lease. */
export interface LeaseOptions {
  /** Whether the holder does nothing in the sandbox itself, so that a delete need not wait for it. Default false. */
  readonly watches?: boolean;
}

/** The leases on one sandbox. */
export class LeaseBook {
  readonly #held = new Set<AbortController>();
  /** Leases that a delete waits for. */
  readonly #working = new Set<AbortController>();
  readonly #drained = new Set<() => void>();
  readonly #onChange: () => void;
  readonly #nowMs: () => number;
  /** Until when there was more than one active operation. */
  #crowdedUntilMs = Number.NEGATIVE_INFINITY;

  /**
   * @param onChange called whenever a lease is taken or released.
   * @param nowMs a monotonic clock.
   */
  constructor(onChange: () => void, nowMs: () => number) {
    this.#onChange = onChange;
    this.#nowMs = nowMs;
  }

  get count(): number {
    return this.#held.size;
  }

  /** For how long there has been at most one active operation, not counting leases that only watch. */
  get aloneForMs(): number {
    return this.#working.size > 1 ? 0 : this.#nowMs() - this.#crowdedUntilMs;
  }

  take(sandbox: LeasedSandbox, { watches = false }: LeaseOptions = {}): Lease {
    const controller = new AbortController();
    this.#held.add(controller);
    if (!watches) this.#working.add(controller);
    this.#onChange();
    const release = (): void => {
      if (!this.#held.delete(controller)) return;
      if (this.#working.size > 1) this.#crowdedUntilMs = this.#nowMs();
      this.#working.delete(controller);
      this.#onChange();
      if (this.#working.size > 0) return;
      for (const resolve of this.#drained) resolve();
      this.#drained.clear();
    };
    return { sandbox, signal: controller.signal, release, [Symbol.dispose]: release };
  }

  /** Aborts the signal of every lease. */
  abortAll(reason: BerthError): void {
    for (const controller of this.#held) controller.abort(reason);
  }

  /** Resolves when no lease is held, except those that only watch. */
  async drained(): Promise<void> {
    if (this.#working.size === 0) return;
    await new Promise<void>((resolve) => this.#drained.add(resolve));
  }
}

/** Is notified when sandboxes become ready and when they end. */
export interface SandboxObserver {
  /** The first shell that it starts in each sandbox, for {@link EngineSandboxSpec.firstShell}. */
  readonly firstShell?: FirstShell;
  ready(sandbox: LeasedSandbox): void;
  /** Called when a sandbox is ending: nothing can run in it any more. */
  ending(sandbox: LeasedSandbox): void;
}
