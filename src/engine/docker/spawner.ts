import { BerthError, throwIfAborted } from "../../core/errors.ts";
import type { LeftProcess, OutputSink, SpawnedProcess, SpawnRequest } from "../../core/ports/engine.ts";
import type { Logger } from "../../core/ports/logger.ts";
import { startSignal } from "../start-signal.ts";
import type { ContainerPipes } from "./container-pipes.ts";
import { ContainerUsers, TELL_IDS } from "./container-users.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";
import { ExecState } from "./exec-state.ts";
import { parseHandle } from "./handle.ts";
import { LeftExec } from "./left-exec.ts";
import { PipedProcess } from "./piped-process.ts";
import { forgetPipes, spawnPiped, takesPipes } from "./piped-spawn.ts";
import { spawnProcess } from "./spawn.ts";
import { StartGate } from "./start-gate.ts";
import { untilAborted } from "./until-aborted.ts";

/** How long a container may take to tell its ids, and how much of that is read. */
const ANSWER_TIMEOUT_MS = 10_000;
const MOST_TOLD_CHARS = 4096;

/** A container with a directory of pipes. */
interface PipedContainer {
  /** Of the directory. */
  readonly name: string;
  readonly users: ContainerUsers;
  /** It is being removed. */
  ending: boolean;
}

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
  /** Containers that have a directory of pipes. */
  readonly #piped = new Map<string, PipedContainer>();
  /** Those whose output still comes. */
  readonly #running = new Set<Spawned>();
  #pipesWork = false;

  constructor(daemon: Daemon, pipes: ContainerPipes | undefined, logger: Logger) {
    this.#daemon = daemon;
    this.#pipes = pipes;
    this.#logger = logger;
  }

  /** Says under which name a container has a directory of pipes. Returns what is known of its users, for what is known already. */
  know(containerId: string, name: string): ContainerUsers {
    const users = new ContainerUsers((user) => this.#askIds(containerId, user));
    this.#piped.set(containerId, { name, users, ending: false });
    return users;
  }

  /** Takes no pipes any more for a container that is about to be removed. */
  end(containerId: string): void {
    const container = this.#piped.get(containerId);
    if (container !== undefined) container.ending = true;
  }

  /** Forgets a container that is gone. */
  async forget(containerId: string): Promise<void> {
    this.gate.forget(containerId);
    const container = this.#piped.get(containerId);
    this.#piped.delete(containerId);
    if (container !== undefined) await this.#pipes?.remove(container.name);
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
    return this.#keep(spawned);
  }

  /** As {@link Engine.recover} says. */
  recover(left: readonly LeftProcess[]): readonly SpawnedProcess[] {
    const found = left.map((process) => this.#keep(this.#recoverOne(process)));
    this.#pipes?.drainUnclaimed();
    return found;
  }

  /** Lets go of all processes. */
  close(): void {
    for (const spawned of this.#running) spawned.destroy();
  }

  #keep(spawned: Spawned): Spawned {
    this.#running.add(spawned);
    void spawned.ended.then(() => this.#running.delete(spawned));
    return spawned;
  }

  #recoverOne({ ref, handle, sink }: LeftProcess): Spawned {
    const { exec, pipes } = parseHandle(handle);
    const state = new ExecState(this.#daemon, exec);
    const container = this.#piped.get(ref);
    const claimed = pipes && container && this.#pipes?.claim(container.name, pipes);
    if (claimed === undefined) return new LeftExec(state);
    const spawned = new PipedProcess(state, claimed.paths, claimed.ends, sink);
    void spawned.ended.then(() => {
      if (!spawned.dropped) forgetPipes(claimed.paths);
    });
    for (const { stream, chunk } of claimed.left) if (chunk.length > 0) sink.data(stream, chunk);
    spawned.closeStdin();
    spawned.resume();
    return spawned;
  }

  /** Undefined where the daemon's streams are to be tried. */
  async #spawnPiped(
    containerId: string,
    user: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<Spawned | undefined> {
    const container = this.#piped.get(containerId);
    if (container === undefined || !takesPipes(request)) return undefined;
    const early = startSignal(request, signal);
    try {
      const uid = await container.users.uidOnHost(user, early);
      if (uid === undefined || container.ending) return undefined;
      const pipes = await this.#pipes?.take(container.name, uid);
      if (pipes === undefined) {
        this.#piped.delete(containerId);
        return undefined;
      }
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
      throwIfAborted(early);
      if (error instanceof BerthError) {
        // What the daemon refuses is refused again, and then told in full.
        if (answerTo(error) !== undefined) return undefined;
        throw error;
      }
      container.users.forget(user);
      this.#logger.debug({ containerId, err: error }, "a process could not open its pipes");
      this.#piped.delete(containerId);
      if (!this.#pipesWork) this.#pipes?.disable(error);
      return undefined;
    }
  }

  /** What {@link TELL_IDS} prints in a container. */
  async #askIds(containerId: string, user: string): Promise<string> {
    let told = "";
    const over = Promise.withResolvers<void>();
    const sink: OutputSink = {
      data: (_, chunk) => {
        told = (told + chunk.toString("latin1")).slice(0, MOST_TOLD_CHARS);
      },
      end: () => over.resolve(),
    };
    const request = { argv: ["/bin/sh", "-c", TELL_IDS], stdin: false };
    const spawned = await spawnProcess(this.#daemon, this.gate, containerId, user, request, sink);
    const limit = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    try {
      await untilAborted(over.promise, limit);
      return told;
    } catch (cause) {
      throw new Error(`the container did not tell its ids in ${ANSWER_TIMEOUT_MS} ms`, { cause });
    } finally {
      spawned.close();
    }
  }
}
