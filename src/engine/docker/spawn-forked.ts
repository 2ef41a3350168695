import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { Turns } from "../../base/turns.ts";
import { startSignal } from "../port.ts";
import { CircuitBreaker } from "./circuit-breaker.ts";
import type { ContainerPipes } from "./container-pipes.ts";
import type { ContainerUsers, UserId } from "./container-users.ts";
import type { ExecStart } from "./exec.ts";
import { abandon, PipedProcess } from "./spawn-piped.ts";
import type { StartGate } from "./start-gate.ts";
import { ForkedState, RequestTooLongError, suitsZygote, type Zygote, type ZygoteAnswers } from "./zygote.ts";
import { type EarlyShell, GO, type Requested, request } from "./zygote-request.ts";

/** How long a zygote may take to start a shell. It normally takes milliseconds. If it is late, nothing runs. */
const OPEN_TIMEOUT_MS = 2_000;

/**
 * A starting shell keeps a CPU busy: several at once would hardly start sooner, and would delay other sandboxes. Too
 * many requests at once would also fill the pipe.
 */
const FORKS_AT_ONCE = 1;

/** The pipes of a process were given to a uid that is not its user's. */
class WrongUidError extends Error {
  /** The correct uid inside the container. */
  readonly uid: number;

  constructor(uid: number) {
    super(`the user has the uid ${uid}`);
    this.uid = uid;
  }
}

/** The zygote did not find the user, so the daemon has to look it up. Not a failure of the zygote. */
class UnknownUserError extends Error {}

interface ForksParts {
  readonly zygote: Zygote;
  /** A shell that started with the container, for the first request that fits it. */
  readonly early: EarlyShell | undefined;
  readonly gate: StartGate;
  readonly users: ContainerUsers;
  readonly pipes: ContainerPipes;
  /** Name of the container's directory of pipes. */
  readonly name: string;
  readonly logger: Logger;
  /** Rejects if the container has ended or the daemon does not answer. */
  findContainer(): Promise<void>;
}

/** Starts processes in one container through its zygote. */
export class Forks {
  readonly #parts: ForksParts;
  #early: EarlyShell | undefined;
  readonly #breaker = new CircuitBreaker();
  readonly #turns = new Turns(FORKS_AT_ONCE);

  constructor(parts: ForksParts) {
    this.#parts = parts;
    this.#early = parts.early;
  }

  /** Starts a process. Undefined if the daemon has to start it: then nothing runs yet, and nothing will. */
  async spawn(start: ExecStart): Promise<PipedProcess | undefined> {
    const { zygote, users } = this.#parts;
    const { user, request } = start;
    const early = startSignal(request, start.signal);
    if (!zygote.alive) this.#dropEarly();
    if (!zygote.alive || !suitsZygote(request)) return undefined;
    for (let isAgain = false; ; isAgain = true) {
      const uid = await users.uidOf(user, early);
      if (uid === undefined) return undefined;
      const forked = await this.#turns.run(() => this.#try(start, uid, early), early);
      if (!(forked instanceof WrongUidError)) return forked;
      if (isAgain) return undefined;
      users.learn(user, forked.uid, "");
    }
  }

  /** One attempt of {@link spawn}. Undefined if the daemon has to start the process. */
  async #try(
    start: ExecStart,
    uid: UserId,
    early: AbortSignal | undefined,
  ): Promise<PipedProcess | WrongUidError | undefined> {
    const { logger } = this.#parts;
    const attempt = this.#breaker.begin();
    if (attempt === undefined) return undefined;
    try {
      const forked = await this.#fork(start, uid, early);
      attempt.succeed();
      return forked;
    } catch (err) {
      throwIfAborted(early);
      if (err instanceof RequestTooLongError || err instanceof UnknownUserError) return undefined;
      if (err instanceof WrongUidError) return err;
      const retryMs = attempt.fail();
      logger.debug({ containerId: start.containerId, err, retryMs }, "a zygote did not start a process");
      return undefined;
    } finally {
      attempt.cancel();
    }
  }

  /** The uid of a user inside the container; undefined if the daemon has to determine it. */
  async uidOf(user: string): Promise<number | undefined> {
    const { users, zygote } = this.#parts;
    const attempt = users.knowsRanges && zygote.alive ? this.#breaker.begin() : undefined;
    try {
      return attempt && (await zygote.uidOf(user));
    } catch {
      attempt?.fail();
      return undefined;
    } finally {
      attempt?.cancel();
    }
  }

  /** The state of a process of an earlier run of the service; undefined if the zygote did not start it. */
  find(handle: string): ForkedState | undefined {
    return ForkedState.find(handle, this.#parts);
  }

  /** Call this when every process of an earlier run of the service that can be found is. */
  recovered(): void {
    this.#parts.zygote.recovered();
  }

  close(): void {
    this.#dropEarly();
    this.#parts.zygote.close();
  }

  /**
   * If this fails, the program has not run and will not: it starts only when it reads a line from stdin, which is sent
   * last. (An {@link EarlyShell} already runs, and ends with its stdin.)
   */
  async #fork(start: ExecStart, uid: UserId, early: AbortSignal | undefined): Promise<PipedProcess> {
    const { zygote, gate, findContainer } = this.#parts;
    const { containerId, request, sink, leftovers } = start;
    let requested: Requested | undefined;
    let leave: (() => void) | undefined;
    try {
      leave = await gate.enter(containerId, early);
      requested = this.#takeEarly(start) ?? (await this.#request(start, uid));
      const { id, answers, pipes, opened, sent } = requested;
      const pid = await untilOpened(opened.stdout, answers, early);
      const { stdin } = opened.ends;
      if (sent === undefined) stdin?.write(request.stdin ? GO.withStdin : GO.withoutStdin);
      if (request.input) stdin?.write(request.input.subarray(sent?.length ?? 0));
      if (!request.stdin) stdin?.end();
      opened.release();
      const state = new ForkedState(id, pid, answers.end, { zygote, findContainer });
      const spawned = new PipedProcess(state, pipes, opened.ends, sink, leftovers);
      spawned.resume();
      return spawned;
    } catch (error) {
      if (requested !== undefined) {
        zygote.forget(requested.id);
        abandon(requested.pipes, requested.opened);
      }
      throw error;
    } finally {
      leave?.();
    }
  }

  async #request({ user, request: wanted }: ExecStart, uid: UserId): Promise<Requested> {
    const { zygote, pipes, name } = this.#parts;
    return request(zygote, await pipes.take(name, uid.onHost), { user, uid: uid.inside }, wanted);
  }

  #takeEarly(start: ExecStart): Requested | undefined {
    const early = this.#early;
    if (!early?.suits(start)) return undefined;
    this.#early = undefined;
    return early.requested;
  }

  #dropEarly(): void {
    this.#early?.abandon();
    this.#early = undefined;
  }
}

/**
 * Waits for the byte that the shell writes when it has opened its pipes, which nothing follows before the go-ahead.
 * Returns the pid of the shell that waits for it. That answer may never come: root in the sandbox can read the answers.
 */
async function untilOpened(
  stdout: Readable,
  { waiterPid, end }: ZygoteAnswers,
  signal: AbortSignal | undefined,
): Promise<number> {
  const opened = Promise.withResolvers<void>();
  const onData = (): void => {
    stdout.off("data", onData).pause();
    opened.resolve();
  };
  stdout.on("data", onData);
  const timeout = new AbortController();
  const late = sleep(OPEN_TIMEOUT_MS, "late" as const, { signal: timeout.signal, ref: false });
  late.catch(() => {});
  try {
    const pid = opened.promise.then(() => waiterPid);
    const first = await untilAborted(Promise.race([pid, end, late]), signal);
    if (typeof first === "number") return first;
    if (first === "late") throw new Error(`the shell was not ready in ${OPEN_TIMEOUT_MS} ms`);
    if (first.kind === "uid") throw new WrongUidError(first.uid);
    if (first.kind === "unknown-user") throw new UnknownUserError();
    const code = first.kind === "exited" ? first.code : "no code";
    throw new Error(`the shell ended with ${code} before it opened its pipes`);
  } finally {
    timeout.abort();
    stdout.off("data", onData);
  }
}
