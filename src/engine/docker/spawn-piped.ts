import { closeSync, constants, openSync, unlink } from "node:fs";
import { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Exec } from "dockerode";
import { abortError, BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import { type OutputSink, type SpawnedProcess, type SpawnRequest, startSignal } from "../port.ts";
import type { ProcessPipes } from "./container-pipes.ts";
import type { Daemon } from "./daemon.ts";
import { ExecState, handleOf, prepareExec } from "./exec.ts";
import { Knocks, type PipePaths } from "./named-pipes.ts";
import type { StartGate } from "./start-gate.ts";

/** How long a shell that has started may take to open its pipes. */
const OPEN_TIMEOUT_MS = 15_000;
/** How long a shell may still come to pipes that were given up. */
const LATE_OPEN_MS = 5_000;

/**
 * Opens the pipes, says so by one byte, and becomes the program. Both outputs
 * are opened for reading too: whoever writes while the service is away waits
 * for its return and is not ended by it. The names come in variables, since
 * every user can read the arguments of a process, and only its own user the environment.
 */
const scriptFor = (stdin: string): string =>
  `exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR" <"${stdin}" && unset BERTH_STDIN BERTH_STDOUT BERTH_STDERR && printf . && exec "$@"`;
const SCRIPT = scriptFor("$BERTH_STDIN");
const SCRIPT_WITHOUT_STDIN = scriptFor("/dev/null");

/** Whether {@link spawnPiped} can serve a request: the shell that opens the pipes is then known to be what is asked for. */
export function takesPipes({ argv, terminal }: SpawnRequest): boolean {
  return argv[0] === "/bin/sh" && terminal === undefined;
}

/**
 * Starts a process by `exec` in a container, its standard streams being named
 * pipes. Fails with a `BerthError` where the daemon does, and with another error
 * where the pipes cannot be had, which says nothing of the daemon's own streams.
 */
export async function spawnPiped(
  daemon: Daemon,
  gate: StartGate,
  containerId: string,
  /** Name or `uid[:gid]`; empty: root. */
  user: string,
  request: SpawnRequest,
  pipes: ProcessPipes,
  sink: OutputSink,
  leftovers: Leftovers,
  signal?: AbortSignal,
): Promise<PipedProcess> {
  const early = startSignal(request, signal);
  let leave: (() => void) | undefined;
  let opened: OpenedPipes | undefined;
  let state: ExecState | undefined;
  try {
    leave = await gate.enter(containerId, early);
    opened = openPipes(pipes, request.stdin);
    if (request.input) opened.ends.stdin?.write(request.input);
    const argv = ["/bin/sh", "-c", request.stdin ? SCRIPT : SCRIPT_WITHOUT_STDIN, "sh", ...request.argv];
    const { stdin, stdout, stderr } = pipes.inside;
    const env = { ...request.env, BERTH_STDIN: stdin, BERTH_STDOUT: stdout, BERTH_STDERR: stderr };
    const detached = { ...request, argv, env, attached: false };
    const exec = await prepareExec(daemon, containerId, user, detached, early);
    throwIfAborted(early);
    state = new ExecState(daemon, exec.id);
    await start(daemon, exec, signal);
    await untilOpened(state, opened.stdout, signal);
    opened.release();
    leave();
    const spawned = new PipedProcess(state, pipes, opened.ends, sink, leftovers);
    void spawned.ended.then(() => {
      if (!spawned.dropped) forgetPipes(pipes);
    });
    spawned.resume();
    return spawned;
  } catch (error) {
    // A shell that comes late finds no name to open; one that is half-way in finds the other end, and then its end.
    endPipes(pipes);
    if (opened !== undefined) abandon(opened);
    // Docker goes on with a start that its caller has given up.
    if (state !== undefined) void state.startOver().finally(leave);
    else leave?.();
    throw error;
  }
}

interface OpenedPipes {
  readonly ends: PipeEnds;
  readonly stdout: Socket;
  /** Closes what has kept the pipes alive until the process has opened them. */
  readonly release: () => void;
}

function openPipes(pipes: ProcessPipes, withStdin: boolean): OpenedPipes {
  const fds: number[] = [];
  const open = (file: string, mode: number): number => {
    const fd = openSync(file, mode | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    fds.push(fd);
    return fd;
  };
  try {
    // An end that is opened alone would be told of the other's absence.
    const names = [pipes.stdout, pipes.stderr, ...(withStdin ? [pipes.stdin] : [])];
    const keepers = names.map((file) => open(file, constants.O_RDWR));
    const input = withStdin ? open(pipes.stdin, constants.O_WRONLY) : undefined;
    const [output, errors] = [open(pipes.stdout, constants.O_RDONLY), open(pipes.stderr, constants.O_RDONLY)];
    const stdout = socketOf(output, "readable");
    const ends: PipeEnds = {
      stdin: input === undefined ? undefined : socketOf(input, "writable"),
      outputs: [
        { stream: "stdout", socket: stdout },
        { stream: "stderr", socket: socketOf(errors, "readable") },
      ],
    };
    const release = (): void => {
      for (const fd of keepers.splice(0)) closeSync(fd);
    };
    return { ends, stdout, release };
  } catch (error) {
    for (const fd of fds) closeSync(fd);
    throw error;
  }
}

function socketOf(fd: number, direction: "readable" | "writable"): Socket {
  const socket = new Socket({ fd, readable: direction === "readable", writable: direction === "writable" });
  // Whoever uses it learns of an error by its close.
  return socket.on("error", () => {});
}

/** Lets go of pipes that may yet be opened on the other side. */
function abandon({ ends: { stdin, outputs }, release }: OpenedPipes): void {
  stdin?.destroy();
  for (const { socket } of outputs) socket.destroy();
  setTimeout(release, LATE_OPEN_MS).unref();
}

function start(daemon: Daemon, exec: Exec, signal?: AbortSignal): Promise<void> {
  return daemon.call(
    "starting a process",
    async (_, abortSignal) => {
      const answer = await exec.start({ Detach: true, Tty: false, abortSignal });
      answer.destroy();
    },
    { signal },
  );
}

/** Waits for the shell's word that it has opened its pipes, which is taken from its output. */
async function untilOpened(state: ExecState, stdout: Socket, signal: AbortSignal | undefined): Promise<void> {
  const word = Promise.withResolvers<"open">();
  word.promise.catch(() => {});
  const onData = (chunk: Buffer): void => {
    stdout.off("data", onData).pause();
    if (chunk.length > 1) stdout.unshift(chunk.subarray(1));
    word.resolve("open");
  };
  const onAbort = () => signal && word.reject(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  stdout.on("data", onData);
  const deadline = performance.now() + OPEN_TIMEOUT_MS;
  try {
    for (let pauseMs = 50; performance.now() < deadline; pauseMs = Math.min(pauseMs * 1.5, 1000)) {
      if ((await Promise.race([word.promise, sleep(pauseMs)])) === "open") return;
      const { Running: running, ExitCode: code } = await state.inspect(signal);
      if (!running && code !== null)
        throw new Error(`the shell ended with ${code} before it opened its pipes`);
    }
  } finally {
    stdout.off("data", onData);
    signal?.removeEventListener("abort", onAbort);
  }
  throw new Error(`the shell did not open its pipes in ${OPEN_TIMEOUT_MS} ms`);
}

/** Lets nobody find pipes that were given up, and has those who found them meet their end. */
function endPipes({ stdin, stdout, stderr }: PipePaths): void {
  for (const file of [stdout, stderr]) unlink(file, () => {});
  new Knocks(stdin, () => unlink(stdin, () => {})).begin();
}

/** The names of pipes are of use until both sides have opened them, and to a later run of the service until they are read to their end. */
export function forgetPipes({ stdin, stdout, stderr }: PipePaths): void {
  for (const file of [stdin, stdout, stderr]) unlink(file, () => {});
}

/** A running `exec` whose standard streams are pipes of Berth's own. Paused until {@link resume} is called. */
export class PipedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #state: ExecState;
  readonly #streams: PipeStreams;
  readonly #knocks: Knocks;
  #dropped = false;

  /** @param pipes paths of its pipes, while they are there. */
  constructor(state: ExecState, pipes: PipePaths, ends: PipeEnds, sink: OutputSink, leftovers: Leftovers) {
    this.handle = handleOf(state.id, pipes);
    this.#state = state;
    this.#knocks = new Knocks(pipes.stdin);
    this.#streams = new PipeStreams(ends, sink, leftovers, () => state.whyEnded());
    void this.ended.then(() => this.#knocks.stop());
  }

  /** Settles, never rejects, when its output has ended. */
  get ended(): Promise<void> {
    return this.#streams.silent;
  }

  /** Whether the pipes were let go of while others may hold them. */
  get dropped(): boolean {
    return this.#dropped;
  }

  pause(): void {
    this.#streams.pause();
  }

  resume(): void {
    this.#streams.resume();
  }

  trickle(): void {
    this.#streams.trickle();
  }

  writeStdin(data: Uint8Array): Promise<void> {
    return this.#streams.write(data);
  }

  closeStdin(): void {
    this.#streams.closeStdin();
    this.#knocks.beginOnce();
  }

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process has no terminal.");
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const code = await this.#state.exitCode(this.ended, signal);
    this.#streams.abandonStdin();
    return code;
  }

  close(): void {
    this.#streams.close(canceled());
    this.#knocks.begin();
  }

  /** Drops the pipes too. Who still writes, or has told its end, then waits until a later run of the service reads on. */
  destroy(): void {
    this.#dropped = true;
    this.#knocks.stop();
    this.#streams.close(canceled());
    this.#streams.destroy();
  }
}
