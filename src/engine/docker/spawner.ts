import { BerthError, throwIfAborted } from "../../core/errors.ts";
import type { OutputSink, SpawnedProcess, SpawnRequest } from "../../core/ports/engine.ts";
import type { Logger } from "../../core/ports/logger.ts";
import type { ContainerPipes } from "./container-pipes.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";
import { spawnPiped, takesPipes } from "./piped-spawn.ts";
import { spawnProcess } from "./spawn.ts";
import { StartGate } from "./start-gate.ts";

interface Spawned extends SpawnedProcess {
  /** Settles, never rejects, when its output has ended. */
  readonly ended: Promise<void>;
  destroy(): void;
}

/** Starts processes in containers: with pipes of Berth's own where it can, else through the daemon's streams. */
export class Spawner {
  /** Keeps starts and pauses of one container apart. */
  readonly gate = new StartGate();
  readonly #daemon: Daemon;
  readonly #pipes: ContainerPipes | undefined;
  readonly #logger: Logger;
  /** Containers that have a directory of pipes, with its name. */
  readonly #piped = new Map<string, string>();
  /** Those whose output still comes. */
  readonly #running = new Set<Spawned>();
  #pipesWork = false;

  constructor(daemon: Daemon, pipes: ContainerPipes | undefined, logger: Logger) {
    this.#daemon = daemon;
    this.#pipes = pipes;
    this.#logger = logger;
  }

  /** Says under which name a container has a directory of pipes. */
  know(containerId: string, pipes: string): void {
    this.#piped.set(containerId, pipes);
  }

  /** Forgets a container that is gone. */
  async forget(containerId: string): Promise<void> {
    this.gate.forget(containerId);
    const name = this.#piped.get(containerId);
    this.#piped.delete(containerId);
    if (name !== undefined) await this.#pipes?.remove(name);
  }

  /** @param user name or `uid[:gid]`; empty: root. */
  async spawn(
    containerId: string,
    user: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    const spawned =
      (await this.#spawnPiped(containerId, user, request, sink, signal)) ??
      (await spawnProcess(this.#daemon, this.gate, containerId, user, request, sink, signal));
    this.#running.add(spawned);
    void spawned.ended.then(() => this.#running.delete(spawned));
    return spawned;
  }

  /** Lets go of all processes. */
  close(): void {
    for (const spawned of this.#running) spawned.destroy();
  }

  /** Undefined where the daemon's streams are to be tried. */
  async #spawnPiped(
    containerId: string,
    user: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<Spawned | undefined> {
    const name = this.#piped.get(containerId);
    if (name === undefined || !takesPipes(request)) return undefined;
    const pipes = await this.#pipes?.take(name);
    if (pipes === undefined) {
      this.#piped.delete(containerId);
      return undefined;
    }
    try {
      const spawned = await spawnPiped(
        this.#daemon,
        this.gate,
        containerId,
        user,
        request,
        pipes,
        sink,
        signal,
      );
      this.#pipesWork = true;
      return spawned;
    } catch (error) {
      throwIfAborted(signal);
      if (error instanceof BerthError) {
        // What the daemon refuses is refused again, and then told in full.
        if (answerTo(error) !== undefined) return undefined;
        throw error;
      }
      this.#logger.debug({ containerId, err: error }, "a process could not open its pipes");
      this.#piped.delete(containerId);
      if (!this.#pipesWork) this.#pipes?.disable(error);
      return undefined;
    }
  }
}
