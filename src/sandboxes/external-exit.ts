import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { EngineEvent, EngineSandbox, EngineSandboxEnd } from "../engine/port.ts";
import type { SandboxDeleter } from "./deleter.ts";
import type { SandboxRecord } from "./record.ts";
import type { SandboxRegistry } from "./registry.ts";
import type { TerminationCause } from "./sandbox.ts";
import type { WarmPool } from "./warm-pool.ts";

/** Learns from the engine which sandboxes ended without Berth's doing, and why; takes away what is left of them. */
export class ExternalExitWatcher {
  readonly #registry: SandboxRegistry;
  readonly #deleter: SandboxDeleter;
  readonly #warmPool: WarmPool;
  readonly #logger: Logger;

  constructor(
    registry: SandboxRegistry,
    deleter: SandboxDeleter,
    warmPool: WarmPool,
    { logger }: { readonly logger: Logger },
  ) {
    this.#registry = registry;
    this.#deleter = deleter;
    this.#warmPool = warmPool;
    this.#logger = logger;
  }

  onEvent(event: EngineEvent): void {
    const record = this.#registry.byRef(event.ref);
    if (record === undefined) this.#warmPool.lost(event.ref);
    else if (event.type === "ended") this.#ended(record, event.end);
    else this.#removed(record);
  }

  /** As {@link EngineFollower.beginSync} says. */
  beginSync(unseen: boolean): (present: readonly EngineSandbox[]) => void {
    const live = this.#registry.live().flatMap(({ phase }) => ("engine" in phase ? phase.engine.ref : []));
    const known = [...live, ...this.#warmPool.refs()];
    return (present) => {
      const byRef = new Map(present.map((sandbox) => [sandbox.ref, sandbox]));
      for (const ref of known) this.compare(ref, byRef.get(ref), unseen);
    };
  }

  /**
   * Holds what was known before the engine was asked against what it answered. An engine that was followed all the
   * time forgets no sandbox by itself: one that is gone was removed, and the event that says so is on its way.
   */
  compare(ref: string, found: EngineSandbox | undefined, unseen: boolean): void {
    const record = this.#registry.byRef(ref);
    if (record === undefined) {
      if (found?.state !== "running") this.#warmPool.lost(ref);
    } else if (found === undefined) {
      if (unseen) this.#lost(record, "ENGINE_LOST", "The engine does not know its container any more.");
      else this.#removed(record);
    } else if (found.state === "ended") {
      this.#ended(record, found.end ?? { exitCode: -1, outOfMemory: false });
    }
  }

  /** As {@link SandboxManager.giveUp} says. */
  giveUp(ref: string, why: string, ifAlone: boolean): boolean {
    const record = this.#registry.byRef(ref);
    if (record === undefined || (ifAlone && record.leases.working > 1)) return false;
    this.#logger.warn({ sandboxId: record.sandboxId }, `a sandbox is given up: ${why}`);
    this.#lost(record, "UNCONTROLLABLE", why);
    return true;
  }

  #removed(record: SandboxRecord): void {
    this.#lost(record, "REMOVED_EXTERNALLY", "Its container was removed outside Berth.");
  }

  #ended(record: SandboxRecord, { exitCode, outOfMemory }: EngineSandboxEnd): void {
    if (outOfMemory) {
      this.#lost(record, "OUT_OF_MEMORY", "The kernel killed its main process for want of memory.");
    } else this.#lost(record, "EXITED", `Its main process ended with code ${exitCode}.`);
  }

  #lost(record: SandboxRecord, cause: TerminationCause, message: string): void {
    const { state } = record.phase;
    if (state !== "RUNNING" && state !== "PAUSED") return;
    const ended = new BerthError("SANDBOX_TERMINATED", `The sandbox ended: ${message}`, {
      metadata: { cause },
    });
    record.leases.abortAll(ended);
    // Where that fails, the deleter tries again.
    this.#deleter.end(record, { cause, message, graceMs: 0 }).catch(() => {});
  }
}
