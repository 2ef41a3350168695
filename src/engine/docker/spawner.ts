import { BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { untilAborted } from "../../base/until.ts";
import type { OrphanedPipes } from "../orphaned-pipes.ts";
import type { LeftProcess, OutputSink, SpawnedProcess, SpawnRequest } from "../port.ts";
import { startSignal } from "../port.ts";
import { CircuitBreaker } from "./circuit-breaker.ts";
import type { ContainerPipes, PipesAttempt } from "./container-pipes.ts";
import { ContainerUsers, TELL_IDS } from "./container-users.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";
import { ExecState, LeftExec, parseHandle } from "./exec.ts";
import { spawnProcess } from "./spawn-attached.ts";
import { forgetPipes, PipedProcess, spawnPiped, takesPipes } from "./spawn-piped.ts";
import { StartGate } from "./start-gate.ts";

/** How long a container may take to tell its ids, and how much of that is read. */
const ANSWER_TIMEOUT_MS = 10_000;
const MAX_TOLD_CHARS = 4096;

/** What is known of a container. */
interface KnownContainer {
  /** Of its directory of pipes; undefined where it has none. */
  readonly name: string | undefined;
  readonly users: ContainerUsers;
  readonly breaker: CircuitBreaker;
  /** It is being removed. */
  ending: boolean;
}

/** What is to be started. */
interface Start {
  readonly containerId: string;
  readonly user: string;
  readonly request: SpawnRequest;
  readonly sink: OutputSink;
  readonly signal: AbortSignal | undefined;
}

/** A start that is to have pipes. */
interface PipedStart extends Start, PipesAttempt {
  readonly container: KnownContainer;
  /** Of the container's directory. */
  readonly name: string;
}

/** Pipes could not be had, or not been opened; the daemon's own streams may serve. */
class PipesFailedError extends Error {}

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
  readonly #orphanedPipes: OrphanedPipes;
  readonly #logger: Logger;
  readonly #containers = new Map<string, KnownContainer>();
  /** Those whose output still comes. */
  readonly #running = new Set<Spawned>();

  constructor(
    daemon: Daemon,
    pipes: ContainerPipes | undefined,
    orphanedPipes: OrphanedPipes,
    logger: Logger,
  ) {
    this.#daemon = daemon;
    this.#pipes = pipes;
    this.#orphanedPipes = orphanedPipes;
    this.#logger = logger;
  }

  /** Containers whose shells get no pipes, where there are pipes at all. */
  get withoutPipes(): number {
    if (this.#pipes === undefined) return 0;
    if (this.#pipes.failing) return this.#containers.size;
    let count = 0;
    for (const { name, breaker } of this.#containers.values())
      if (name === undefined || breaker.open) count++;
    return count;
  }

  /**
   * Takes note of a container. Returns what is known of its users, for what is known already.
   * @param name of its directory of pipes; undefined where it has none.
   */
  know(containerId: string, name: string | undefined): ContainerUsers {
    const users = new ContainerUsers((user) => this.#askIds(containerId, user));
    this.#containers.set(containerId, { name, users, breaker: new CircuitBreaker(), ending: false });
    return users;
  }

  knows(containerId: string): boolean {
    return this.#containers.has(containerId);
  }

  /** Takes no pipes any more for a container that is about to be removed. */
  end(containerId: string): void {
    const container = this.#containers.get(containerId);
    if (container !== undefined) container.ending = true;
  }

  /** Forgets a container that is gone. */
  async forget(containerId: string): Promise<void> {
    this.gate.forget(containerId);
    const container = this.#containers.get(containerId);
    this.#containers.delete(containerId);
    if (container?.name !== undefined) await this.#pipes?.remove(container.name);
  }

  /** @param user name or `uid[:gid]`; empty: root. */
  async spawn(
    containerId: string,
    user: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    return this.#keep(await this.#spawn({ containerId, user, request, sink, signal }));
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
    const name = this.#containers.get(ref)?.name;
    const claimed = pipes && name !== undefined ? this.#pipes?.claim(name, pipes) : undefined;
    if (claimed === undefined) return new LeftExec(state);
    const leftovers = this.#orphanedPipes.of(ref);
    const spawned = new PipedProcess(state, claimed.paths, claimed.ends, sink, leftovers);
    void spawned.ended.then(() => {
      if (!spawned.dropped) forgetPipes(claimed.paths);
    });
    for (const { stream, chunk } of claimed.left) if (chunk.length > 0) sink.data(stream, chunk);
    spawned.closeStdin();
    spawned.resume();
    return spawned;
  }

  async #spawn(start: Start): Promise<Spawned> {
    const piped = this.#beginPiped(start);
    if (piped === undefined) return this.#spawnUnpiped(start);
    try {
      const spawned = await this.#spawnPiped(piped);
      if (spawned === undefined) return await this.#spawnUnpiped(start);
      piped.worked();
      return spawned;
    } catch (error) {
      if (!(error instanceof PipesFailedError)) throw error;
      const spawned = await this.#spawnUnpiped(start);
      // Where nothing can be started that is not for the pipes.
      piped.failed(error.cause);
      return spawned;
    } finally {
      piped.cancel();
    }
  }

  #spawnUnpiped({ containerId, user, request, sink, signal }: Start): Promise<Spawned> {
    const leftovers = this.#orphanedPipes.of(containerId);
    return spawnProcess(this.#daemon, this.gate, containerId, user, request, sink, leftovers, signal);
  }

  /** Undefined where pipes are not to be tried. */
  #beginPiped(start: Start): PipedStart | undefined {
    const { containerId } = start;
    const container = this.#containers.get(containerId);
    const name = container?.name;
    if (container === undefined || name === undefined || container.ending || !takesPipes(start.request))
      return undefined;
    const own = container.breaker.begin();
    const attempt = own && this.#pipes?.begin();
    if (attempt === undefined) {
      own?.cancel();
      return undefined;
    }
    return {
      ...start,
      ...{ container, name },
      worked: () => {
        own?.succeed();
        attempt.worked();
      },
      failed: (err) => {
        const retryMs = container.ending ? undefined : own?.fail();
        if (retryMs === undefined) return;
        this.#logger.warn(
          { containerId, err, retryMs },
          "a sandbox's pipes failed: its output comes through Docker's own streams, which is slower",
        );
        attempt.failed(err);
      },
      cancel: () => {
        own?.cancel();
        attempt.cancel();
      },
    };
  }

  /** Undefined where the daemon's streams are to be tried. @throws PipesFailedError */
  async #spawnPiped(start: PipedStart): Promise<Spawned | undefined> {
    const { containerId, container, name, user, request, sink, signal } = start;
    const early = startSignal(request, signal);
    try {
      const uid = await container.users.uidOnHost(user, early);
      if (uid === undefined || container.ending) return undefined;
      const pipes = await this.#pipes?.take(name, uid);
      if (pipes === undefined) return undefined;
      const leftovers = this.#orphanedPipes.of(containerId);
      return await spawnPiped(
        this.#daemon,
        this.gate,
        containerId,
        user,
        request,
        pipes,
        sink,
        leftovers,
        signal,
      );
    } catch (error) {
      throwIfAborted(early);
      if (error instanceof BerthError) {
        // What the daemon refuses is refused again, and then told in full.
        if (answerTo(error) !== undefined) return undefined;
        throw error;
      }
      container.users.forget(user);
      throw new PipesFailedError("a process could not open its pipes", { cause: error });
    }
  }

  /** What {@link TELL_IDS} prints in a container. */
  async #askIds(containerId: string, user: string): Promise<string> {
    let told = "";
    const over = Promise.withResolvers<void>();
    const sink: OutputSink = {
      data: (_, chunk) => {
        told = (told + chunk.toString("latin1")).slice(0, MAX_TOLD_CHARS);
      },
      end: () => over.resolve(),
    };
    const request = { argv: ["/bin/sh", "-c", TELL_IDS], stdin: false };
    const spawned = await this.#spawnUnpiped({ containerId, user, request, sink, signal: undefined });
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
