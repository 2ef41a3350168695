import { untilAborted } from "../../base/async.ts";
import { BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { OrphanedPipes } from "../orphaned-pipes.ts";
import {
  type LeftProcess,
  type OutputSink,
  type SpawnedProcess,
  type SpawnRequest,
  startSignal,
} from "../port.ts";
import { CircuitBreaker } from "./circuit-breaker.ts";
import type { ContainerPipes, PipesAttempt } from "./container-pipes.ts";
import { ContainerUsers, PRINT_IDS } from "./container-users.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";
import { DetachedProcess, type ExecStart, ExecState, parseHandle } from "./exec.ts";
import { spawnAttached } from "./spawn-attached.ts";
import { Forks } from "./spawn-forked.ts";
import { PipedProcess, spawnPiped, takesPipes } from "./spawn-piped.ts";
import { StartGate } from "./start-gate.ts";
import type { Zygote } from "./zygote.ts";
import type { EarlyShell } from "./zygote-request.ts";

/** How long a container may take to print its ids, and how much of the output to read. */
const ANSWER_TIMEOUT_MS = 10_000;
const MAX_ANSWER_CHARS = 4096;

interface Container {
  /** Name of its directory of pipes; undefined if it has none. */
  readonly name: string | undefined;
  readonly users: ContainerUsers;
  /** Undefined if it has no zygote. */
  readonly forks: Forks | undefined;
  readonly breaker: CircuitBreaker;
  ending: boolean;
}

interface PipedStart extends ExecStart, PipesAttempt {
  readonly container: Container;
  /** Name of the container's directory of pipes. */
  readonly name: string;
}

/** The pipes could not be created or opened. The daemon's own streams may work. */
class PipesFailedError extends Error {}

interface Spawned extends SpawnedProcess {
  /** Resolves when its output has ended. Never rejects. */
  readonly ended: Promise<void>;
  /** @param reason the argument of the sink's `end`, if it has not ended yet. Default `CANCELED`. */
  destroy(reason?: Error): void;
}

interface StartedWith {
  readonly zygote?: Zygote | undefined;
  readonly early?: EarlyShell | undefined;
}

/** How long the output of processes may continue when their container is gone. Some runtimes never end it. */
const LINGER_MS = 1_000;

/** Starts processes in containers, over named pipes if they work, else through the daemon's streams. */
export class Spawner {
  /** Keeps starts and pauses of one container apart. */
  readonly gate = new StartGate();
  readonly #daemon: Daemon;
  readonly #pipes: ContainerPipes | undefined;
  readonly #orphanedPipes: OrphanedPipes;
  readonly #logger: Logger;
  readonly #containers = new Map<string, Container>();
  /** Processes whose output has not ended, with their containers. */
  readonly #running = new Map<Spawned, string>();

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

  /** Number of containers whose shells get no pipes; 0 if the engine does not use pipes. */
  get withoutPipes(): number {
    if (this.#pipes === undefined) return 0;
    if (this.#pipes.failing) return this.#containers.size;
    let count = 0;
    for (const { name, breaker } of this.#containers.values())
      if (name === undefined || breaker.open) count++;
    return count;
  }

  /**
   * Adds a container. Returns its users, to which the caller can add what it knows.
   * @param name the name of its directory of pipes; undefined if it has none.
   * @param started what started with it. Default: nothing; then this looks for its zygote.
   */
  add(containerId: string, name: string | undefined, started: StartedWith = {}): ContainerUsers {
    const users = new ContainerUsers((user) => this.#askIds(containerId, user));
    const forks = this.#forksOf(containerId, name, users, started);
    this.#containers.set(containerId, { name, users, forks, breaker: new CircuitBreaker(), ending: false });
    return users;
  }

  has(containerId: string): boolean {
    return this.#containers.has(containerId);
  }

  /** Marks a container as being removed: it gets no more pipes, and its pipes are removed. */
  async end(containerId: string): Promise<void> {
    const container = this.#containers.get(containerId);
    if (container === undefined) return;
    container.ending = true;
    if (container.name !== undefined) await this.#pipes?.remove(container.name);
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.gate.forget(containerId);
    this.#containers.get(containerId)?.forks?.close();
    this.#containers.delete(containerId);
    setTimeout(() => this.#destroyIn(containerId), LINGER_MS).unref();
  }

  /** @param user a name or `uid[:gid]`; empty: root. */
  async spawn(
    containerId: string,
    user: string,
    request: SpawnRequest,
    sink: OutputSink,
    signal?: AbortSignal,
  ): Promise<SpawnedProcess> {
    const leftovers = this.#orphanedPipes.of(containerId);
    const spawned = await this.#spawn({ containerId, user, request, sink, leftovers, signal });
    return this.#track(containerId, spawned);
  }

  /** Implements {@link Engine.recover}. */
  recover(left: readonly LeftProcess[]): readonly SpawnedProcess[] {
    const processes = left.map((process) => this.#track(process.ref, this.#recoverOne(process)));
    this.#pipes?.drainUnclaimed();
    for (const { forks } of this.#containers.values()) forks?.recovered();
    return processes;
  }

  close(): void {
    for (const spawned of this.#running.keys()) spawned.destroy();
    for (const { forks } of this.#containers.values()) forks?.close();
  }

  #destroyIn(containerId: string): void {
    for (const [spawned, id] of this.#running) if (id === containerId) spawned.destroy(containerGone());
  }

  #track(containerId: string, spawned: Spawned): Spawned {
    this.#running.set(spawned, containerId);
    void spawned.ended.then(() => this.#running.delete(spawned));
    return spawned;
  }

  #recoverOne({ ref, handle, sink }: LeftProcess): Spawned {
    const { state: stateHandle, pipes } = parseHandle(handle);
    const { name, forks } = this.#containers.get(ref) ?? {};
    const state = forks?.find(stateHandle) ?? new ExecState(this.#daemon, stateHandle);
    const claimed = pipes && name !== undefined ? this.#pipes?.claim(name, pipes) : undefined;
    if (claimed === undefined) return new DetachedProcess(state);
    const leftovers = this.#orphanedPipes.of(ref);
    const spawned = new PipedProcess(state, claimed.paths, claimed.ends, sink, leftovers);
    for (const { stream, chunk } of claimed.left) if (chunk.length > 0) sink.data(stream, chunk);
    spawned.closeStdin();
    spawned.resume();
    return spawned;
  }

  #forksOf(
    containerId: string,
    name: string | undefined,
    users: ContainerUsers,
    { zygote = name === undefined ? undefined : this.#pipes?.zygote(name), early }: StartedWith,
  ): Forks | undefined {
    if (name === undefined || this.#pipes === undefined || zygote === undefined) return undefined;
    const { gate } = this;
    return new Forks({
      ...{ zygote, early },
      gate,
      users,
      pipes: this.#pipes,
      name,
      logger: this.#logger,
      findContainer: () => this.#find(containerId),
    });
  }

  /** Rejects if a container has ended or the daemon does not answer. */
  async #find(containerId: string): Promise<void> {
    const { State: state } = await this.#daemon.call("inspecting a container", (docker, abortSignal) =>
      docker.getContainer(containerId).inspect({ abortSignal }),
    );
    if (!state.Running) throw containerGone();
  }

  async #spawn(start: ExecStart): Promise<Spawned> {
    const piped = this.#beginPiped(start);
    if (piped === undefined) return this.#spawnAttached(start);
    try {
      const spawned = await this.#spawnPiped(piped);
      if (spawned === undefined) return await this.#spawnAttached(start);
      piped.worked();
      return spawned;
    } catch (error) {
      if (!(error instanceof PipesFailedError)) throw error;
      const spawned = await this.#spawnAttached(start);
      // Only report the failure now: if the daemon's streams had failed too, the pipes would not be the cause.
      piped.failed(error.cause);
      return spawned;
    } finally {
      piped.cancel();
    }
  }

  #spawnAttached(start: ExecStart): Promise<Spawned> {
    return spawnAttached(this.#daemon, this.gate, start);
  }

  /** Starts an attempt with pipes; undefined if pipes must not be tried. */
  #beginPiped(start: ExecStart): PipedStart | undefined {
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

  /** Undefined if the daemon's streams must be used. @throws PipesFailedError */
  async #spawnPiped(start: PipedStart): Promise<Spawned | undefined> {
    const { container, name, user } = start;
    const early = startSignal(start.request, start.signal);
    try {
      const forked = await container.forks?.spawn(start);
      if (forked !== undefined) return forked;
      const uid = await container.users.uidOf(user, early);
      if (uid === undefined || container.ending) return undefined;
      const pipes = await this.#pipes?.take(name, uid.onHost);
      if (pipes === undefined) return undefined;
      return await spawnPiped(this.#daemon, this.gate, start, pipes);
    } catch (error) {
      throwIfAborted(early);
      if (error instanceof BerthError) {
        // The daemon will refuse again when its own streams are tried, and then with the full message.
        if (answerTo(error) !== undefined) return undefined;
        throw error;
      }
      container.users.forget(user);
      throw new PipesFailedError("a process could not open its pipes", { cause: error });
    }
  }

  /** Runs {@link PRINT_IDS} in a container, or as much of it as is needed, and returns the output. */
  async #askIds(containerId: string, user: string): Promise<string> {
    const uid = await this.#containers.get(containerId)?.forks?.uidOf(user);
    if (uid !== undefined) return `berth-uid ${uid}`;
    let answer = "";
    const over = Promise.withResolvers<void>();
    const sink: OutputSink = {
      data: (_, chunk) => {
        answer = (answer + chunk.toString("latin1")).slice(0, MAX_ANSWER_CHARS);
      },
      end: () => over.resolve(),
    };
    const request = { argv: ["/bin/sh", "-c", PRINT_IDS], stdin: false };
    const leftovers = this.#orphanedPipes.of(containerId);
    const spawned = await this.#spawnAttached({
      ...{ containerId, user, request, sink, leftovers },
      signal: undefined,
    });
    const limit = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    try {
      await untilAborted(over.promise, limit);
      return answer;
    } catch (cause) {
      throw new Error(`the container did not print its ids in ${ANSWER_TIMEOUT_MS} ms`, { cause });
    } finally {
      spawned.close();
    }
  }
}

function containerGone(): BerthError {
  return new BerthError("SANDBOX_TERMINATED", "The sandbox's container is gone.");
}
