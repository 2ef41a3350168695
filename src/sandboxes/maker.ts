import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../base/clock.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import type { Engine, EngineSandbox } from "../engine/port.ts";
import type { SandboxJournal } from "./journal.ts";
import type { SandboxObserver } from "./lease.ts";
import type { MountSources } from "./mount-sources.ts";
import type { SandboxRecord } from "./record.ts";
import { leasedOf, type WarmSandbox } from "./warm-pool.ts";

/** Progress of a pull is told at most this often. */
const PROGRESS_INTERVAL_MS = 500;

/** Brings what stands behind a sandbox into being: from a warm one, or from its image. */
export class SandboxMaker {
  readonly #engine: Engine;
  readonly #journal: SandboxJournal;
  readonly #clock: Clock;
  readonly #mounts: MountSources;
  readonly #observer: SandboxObserver;

  constructor(parts: {
    readonly engine: Engine;
    readonly journal: SandboxJournal;
    readonly clock: Clock;
    readonly mounts: MountSources;
    readonly observer: SandboxObserver;
  }) {
    this.#engine = parts.engine;
    this.#journal = parts.journal;
    this.#clock = parts.clock;
    this.#mounts = parts.mounts;
    this.#observer = parts.observer;
  }

  /** Makes it; on failure and on abort nothing is left. */
  async make(
    record: SandboxRecord,
    warm: WarmSandbox | undefined,
    signal: AbortSignal,
  ): Promise<EngineSandbox> {
    const adapted = warm && (await this.#adapt(warm, record, signal));
    const engine = adapted ?? (await this.#makeCold(record, signal));
    if (!signal.aborted) return engine;
    await this.#engine.remove(engine.ref);
    throw abortError(signal);
  }

  async #makeCold(record: SandboxRecord, signal: AbortSignal): Promise<EngineSandbox> {
    throwIfAborted(signal);
    const { spec, sandboxId, generation, owner } = record;
    const mounts = await this.#mounts.resolve(owner, spec);
    let toldAt = Number.NEGATIVE_INFINITY;
    await this.#engine.ensureImage(spec.image, {
      signal,
      onProgress: (progress) => {
        const now = this.#clock.monotonicMs();
        if (now - toldAt < PROGRESS_INTERVAL_MS && progress.layersDone < progress.layersTotal) return;
        toldAt = now;
        this.#journal.emit(record, { type: "IMAGE_PULL", image: spec.image, progress });
      },
    });
    return this.#engine.create({ ...spec, sandboxId, generation, owner, mounts }, signal);
  }

  /**
   * Makes a sandbox that waited into what was asked for. What cannot be made so
   * is removed; undefined where a new one can be what this one could not.
   */
  async #adapt(
    { engine, resources }: WarmSandbox,
    { spec, owner }: SandboxRecord,
    signal: AbortSignal,
  ): Promise<EngineSandbox | undefined> {
    try {
      if (spec.mounts.length > 0) {
        await this.#engine.mount(engine.ref, await this.#mounts.resolve(owner, spec), signal);
      }
      if (!isDeepStrictEqual(resources, spec.resources)) {
        await this.#engine.setResources(engine.ref, spec.resources, signal);
      }
      return engine;
    } catch (error) {
      this.#observer.ending(leasedOf(engine, spec));
      await this.#engine.remove(engine.ref);
      if (spec.mounts.length > 0 && error instanceof BerthError && error.reason === "UNSUPPORTED")
        return undefined;
      throw error;
    }
  }
}
