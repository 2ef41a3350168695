import { abortError, BerthError } from "../../src/base/errors.ts";
import { collectEvents, type EventSink } from "../../src/engine/collect-events.ts";
import type {
  Engine,
  EngineEvent,
  EngineFigures,
  EngineInfo,
  EngineSandbox,
  EngineSandboxEnd,
  EngineSandboxSpec,
  EngineUsage,
  EnsureImageOptions,
  LeftProcess,
  SpawnedProcess,
  WaitingSandbox,
} from "../../src/engine/port.ts";

/** The steps of an engine that a test may delay or fail. */
export type EngineStep =
  | "ensureImage"
  | "create"
  | "pause"
  | "resume"
  | "isPaused"
  | "remove"
  | "list"
  | "setResources"
  | "usage";

/**
 * An engine without containers, for what a real one cannot be made to do at the right moment: thousands of
 * interleavings, and failures at a chosen step. It keeps what an engine would: a failed create leaves nothing behind.
 */
export class MemoryEngine implements Engine {
  readonly name = "memory";
  readonly undumpable = undefined;
  /** Awaited before each step. If it throws, the step fails. */
  before: (step: EngineStep, id: string) => Promise<void> = async () => {};
  readonly sandboxes = new Map<string, EngineSandbox>();
  readonly #watchers = new Set<EventSink>();
  #refs = 0;
  down = false;
  cpus = 4;
  memoryBytes = 2 ** 34;
  waiting: WaitingSandbox[] = [];

  async info(): Promise<EngineInfo> {
    this.#assertUp();
    const all = {
      pause: true,
      memoryLimit: true,
      cpuLimit: true,
      pidsLimit: true,
      systemCallFilter: true,
      diskLimit: false,
      egress: false,
      egressDomains: false,
    };
    return {
      version: "1",
      isolation: "CONTAINER",
      images: true,
      capabilities: all,
      cpus: this.cpus,
      memoryBytes: this.memoryBytes,
    };
  }

  async ensureImage(image: string, { signal }: EnsureImageOptions): Promise<void> {
    await this.#step("ensureImage", image, signal);
    if (image.includes("missing")) throw new BerthError("IMAGE_UNAVAILABLE", `There is no image ${image}.`);
  }

  async create(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<EngineSandbox> {
    await this.#step("create", spec.sandboxId, signal);
    const ref = `ref-${++this.#refs}`;
    const { sandboxId, generation, owner } = spec;
    const made = {
      ref,
      sandboxId,
      generation,
      owner,
      state: "running",
      isolation: "CONTAINER",
      user: "",
    } as const;
    this.sandboxes.set(ref, made);
    return made;
  }

  async pause(ref: string, signal?: AbortSignal): Promise<void> {
    await this.#step("pause", ref, signal);
    this.#change(ref, "paused");
  }

  async resume(ref: string, signal?: AbortSignal): Promise<void> {
    await this.#step("resume", ref, signal);
    this.#change(ref, "running");
  }

  async isPaused(ref: string, signal?: AbortSignal): Promise<boolean> {
    const { state } = this.#find(ref);
    // Does not include what happens while the response is on its way.
    await this.#step("isPaused", ref, signal);
    return state === "paused";
  }

  async mount(): Promise<void> {
    throw new BerthError("UNSUPPORTED", "This engine mounts nothing later.");
  }

  async setResources(ref: string, _resources: unknown, signal?: AbortSignal): Promise<void> {
    await this.#step("setResources", ref, signal);
    this.#change(ref, "running");
  }

  async remove(ref: string, signal?: AbortSignal): Promise<void> {
    await this.#step("remove", ref, signal);
    const gone = this.sandboxes.get(ref);
    if (gone === undefined) return;
    this.sandboxes.delete(ref);
    this.#tell({ type: "removed", ref, sandboxId: gone.sandboxId });
  }

  async list(signal?: AbortSignal): Promise<EngineSandbox[]> {
    const snapshot = [...this.sandboxes.values()];
    // Does not include what happens while the response is on its way.
    await this.#step("list", "", signal);
    return snapshot;
  }

  async *events(signal: AbortSignal): AsyncGenerator<EngineEvent> {
    this.#assertUp();
    const listen = (sink: EventSink) => {
      this.#watchers.add(sink);
      return () => this.#watchers.delete(sink);
    };
    yield* collectEvents(listen, signal);
  }

  async usage(ref: string, signal?: AbortSignal): Promise<EngineUsage> {
    await this.#step("usage", ref, signal);
    this.#find(ref);
    return { memoryBytes: 1024, cpuNanos: 1_500_000_000, pids: 3 };
  }

  async spawn(): Promise<SpawnedProcess> {
    throw new BerthError("UNSUPPORTED", "This engine starts no processes.");
  }

  async recover(left: readonly LeftProcess[]): Promise<readonly (SpawnedProcess | undefined)[]> {
    return left.map(() => undefined);
  }

  async listen(): Promise<never> {
    throw new BerthError("UNSUPPORTED", "This engine has no network.");
  }

  async outside(): Promise<undefined> {
    return undefined;
  }

  figures(): EngineFigures {
    return { orphanedPipes: 0, sandboxesWithoutPipes: 0, waiting: this.waiting };
  }

  async close(): Promise<void> {}

  /** Ends a sandbox's main process. */
  end(ref: string, end: EngineSandboxEnd): void {
    const sandbox = this.#find(ref);
    this.sandboxes.set(ref, { ...sandbox, state: "ended", end });
    this.#tell({ type: "ended", ref, sandboxId: sandbox.sandboxId, end });
  }

  /** Pauses or resumes a sandbox behind the service's back. */
  change(ref: string, type: "paused" | "resumed"): void {
    this.#change(ref, type === "paused" ? "paused" : "running");
    this.#tell({ type, ref, sandboxId: this.#find(ref).sandboxId });
  }

  /** Removes a sandbox behind the service's back. */
  vanish(ref: string): void {
    const { sandboxId } = this.#find(ref);
    this.sandboxes.delete(ref);
    this.#tell({ type: "removed", ref, sandboxId });
  }

  /** Breaks the connection, as at a restart of a daemon. */
  breakConnections(): void {
    for (const watcher of this.#watchers)
      watcher.fail(new BerthError("ENGINE_UNAVAILABLE", "The connection broke."));
  }

  #tell(event: EngineEvent): void {
    for (const watcher of this.#watchers) watcher.push(event);
  }

  #change(ref: string, state: "running" | "paused"): void {
    this.sandboxes.set(ref, { ...this.#find(ref), state });
  }

  #find(ref: string): EngineSandbox {
    const found = this.sandboxes.get(ref);
    if (found === undefined || found.state === "ended") {
      throw new BerthError("SANDBOX_TERMINATED", "The sandbox is gone.");
    }
    return found;
  }

  async #step(step: EngineStep, id: string, signal: AbortSignal | undefined): Promise<void> {
    this.#assertUp();
    await this.before(step, id);
    this.#assertUp();
    if (signal?.aborted) throw abortError(signal);
  }

  #assertUp(): void {
    if (this.down) throw new BerthError("ENGINE_UNAVAILABLE", "The engine does not answer.");
  }
}
