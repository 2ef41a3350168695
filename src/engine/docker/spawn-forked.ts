import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { throwIfAborted } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { Turns } from "../../base/turns.ts";
import { type FirstShell, type SpawnRequest, startSignal } from "../port.ts";
import { CircuitBreaker } from "./circuit-breaker.ts";
import type { ContainerPipes, ProcessPipes } from "./container-pipes.ts";
import type { ContainerUsers, UserId } from "./container-users.ts";
import type { ExecStart } from "./exec.ts";
import { abandon, type OpenedPipes, openPipes, PipedProcess } from "./spawn-piped.ts";
import type { StartGate } from "./start-gate.ts";
import {
  ForkedState,
  RequestTooLongError,
  suitsZygote,
  type Zygote,
  type ZygoteAnswer,
  type ZygoteAnswers,
} from "./zygote.ts";

/** How long a zygote may take. It takes milliseconds, and nothing runs unless it is in time. */
const OPEN_TIMEOUT_MS = 2_000;

/**
 * A shell that starts keeps a CPU at work: several at once would start hardly
 * sooner, and keep other sandboxes waiting. A crowd of requests fills the pipe.
 */
const FORKS_AT_ONCE = 1;

/** The user of a process has another uid than its pipes were given to. */
class WrongUidError extends Error {
  /** The right one, as the container counts users. */
  readonly uid: number;

  constructor(uid: number) {
    super(`the user has the uid ${uid}`);
    this.uid = uid;
  }
}

/** What the zygote leaves to the daemon: no fault of its own. */
class UnknownUserError extends Error {}

/** What {@link Forks} needs. */
interface ForksParts {
  readonly zygote: Zygote;
  /** For the first that wants it. */
  readonly early: EarlyShell | undefined;
  readonly gate: StartGate;
  readonly users: ContainerUsers;
  readonly pipes: ContainerPipes;
  /** Name of the container's directory of pipes. */
  readonly name: string;
  readonly logger: Logger;
  /** Rejects where the container has ended, or the daemon does not answer. */
  findContainer(): Promise<void>;
}

/** Lets a shell that has opened its pipes become its program, with its stdin or without. */
const GO = { withStdin: "stdin\n", withoutStdin: "\n" };

/** A program on its way from a zygote. */
interface Requested {
  readonly id: string;
  readonly answers: ZygoteAnswers;
  readonly pipes: ProcessPipes;
  readonly opened: OpenedPipes;
  /** What of the program's input is on its way, with the go-ahead before it. Undefined: nothing. */
  readonly sent?: Buffer;
}

const NOTHING = new Uint8Array();

/** The user that a program runs as. */
interface As {
  readonly user: string;
  /** As the container counts users. */
  readonly uid: number;
}

/** Asks a zygote for a program. On failure its pipes are given up. */
function request(
  zygote: Zygote,
  pipes: ProcessPipes,
  { user, uid }: As,
  { argv, env = {} }: Pick<SpawnRequest, "argv" | "env">,
): Requested {
  let opened: OpenedPipes | undefined;
  try {
    opened = openPipes(pipes, true);
    const id = zygote.request({ user: user || "0", uid, pipes: pipes.inside, argv, env });
    return { id, answers: zygote.answers(id), pipes, opened };
  } catch (error) {
    abandon(pipes, opened);
    throw error;
  }
}

/**
 * A shell that is asked for before its container starts: it is there as soon as that is, and has read what every such
 * shell reads first.
 */
export class EarlyShell {
  readonly requested: Requested;
  readonly #user: string;
  readonly #shell: FirstShell;

  private constructor(requested: Requested, user: string, shell: FirstShell) {
    this.requested = requested;
    this.#user = user;
    this.#shell = shell;
  }

  /** @param pipes belong to the uid. @throws what asking the zygote throws */
  static start(zygote: Zygote, pipes: ProcessPipes, as: As, shell: FirstShell): EarlyShell {
    const requested = request(zygote, pipes, as, shell);
    const { stdin } = requested.opened.ends;
    stdin?.write(GO.withStdin);
    stdin?.write(shell.input);
    return new EarlyShell({ ...requested, sent: shell.input }, as.user, shell);
  }

  /** Whether it is what should start. */
  suits({ user, request: { argv, env = {}, stdin, input = NOTHING } }: ExecStart): boolean {
    const { argv: own, input: read } = this.#shell;
    const isSame = argv.length === own.length && argv.every((word, place) => word === own[place]);
    const readsOn = stdin && read.equals(input.subarray(0, read.length));
    return user === this.#user && isSame && readsOn && Object.keys(env).length === 0;
  }

  abandon(): void {
    abandon(this.requested.pipes, this.requested.opened);
  }
}

/** Starts processes in one container by its zygote. */
export class Forks {
  readonly #parts: ForksParts;
  #early: EarlyShell | undefined;
  readonly #breaker = new CircuitBreaker();
  readonly #turns = new Turns(FORKS_AT_ONCE);

  constructor(parts: ForksParts) {
    this.#parts = parts;
    this.#early = parts.early;
  }

  /** Starts a process. Undefined where the daemon has to: nothing runs yet, and nothing will. */
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

  /** Undefined where the daemon has to. */
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

  /** The uid of a user, as the container counts users; undefined where the daemon has to find it out. */
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

  /** The state of a process of an earlier run of the service; undefined where its zygote did not start it. */
  find(handle: string): ForkedState | undefined {
    return ForkedState.find(handle, this.#parts);
  }

  close(): void {
    this.#dropEarly();
    this.#parts.zygote.close();
  }

  /**
   * Where this fails, the program has not run and will not: it starts when a line comes over stdin, which is sent last.
   * An {@link EarlyShell} has run, and ends with its stdin.
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
      await untilOpened(opened.stdout, answers.end, early);
      const pid = await untilAborted(answers.waiterPid, early);
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

/** Waits for the byte by which the shell reports that it has opened its pipes. Nothing follows it before the go-ahead. */
async function untilOpened(
  stdout: Readable,
  answer: Promise<ZygoteAnswer>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const opened = Promise.withResolvers<"open">();
  const onData = (): void => {
    stdout.off("data", onData).pause();
    opened.resolve("open");
  };
  stdout.on("data", onData);
  const timeout = new AbortController();
  const late = sleep(OPEN_TIMEOUT_MS, "late" as const, { signal: timeout.signal, ref: false });
  late.catch(() => {});
  try {
    const first = await untilAborted(Promise.race([opened.promise, answer, late]), signal);
    if (first === "open") return;
    if (first === "late") throw new Error(`the shell did not open its pipes in ${OPEN_TIMEOUT_MS} ms`);
    if (first.kind === "uid") throw new WrongUidError(first.uid);
    if (first.kind === "unknown-user") throw new UnknownUserError();
    const code = first.kind === "exited" ? first.code : "no code";
    throw new Error(`the shell ended with ${code} before it opened its pipes`);
  } finally {
    timeout.abort();
    stdout.off("data", onData);
  }
}
