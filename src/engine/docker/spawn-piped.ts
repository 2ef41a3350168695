import { closeSync, constants, unlink } from "node:fs";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import type { Exec } from "dockerode";
import { untilAborted } from "../../base/async.ts";
import { BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import { type OutputSink, type SpawnedProcess, type SpawnRequest, startSignal } from "../port.ts";
import type { ProcessPipes } from "./container-pipes.ts";
import type { Daemon } from "./daemon.ts";
import { createExec, type ExecStart, ExecState, formatHandle, type ProcessState } from "./exec.ts";
import { openPipe, type PipePaths, pipeSocket, removePipes, StdinCloser } from "./named-pipes.ts";
import type { StartGate } from "./start-gate.ts";

/** How long a shell that has started may take to open its pipes. */
const OPEN_TIMEOUT_MS = 15_000;
/** How long a shell may still open pipes that were given up. */
const LATE_OPEN_MS = 5_000;

/**
 * Opens the pipes, reports that by one byte, and becomes the program. Both outputs
 * are opened for reading too: a writer blocks while the service is away instead
 * of dying of SIGPIPE. The names come in variables, since every user can read
 * the arguments of a process, and only its own user the environment.
 */
const scriptFor = (stdin: string): string =>
  `exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR" <"${stdin}" && unset BERTH_STDIN BERTH_STDOUT BERTH_STDERR && printf . && exec "$@"`;
const SCRIPT = scriptFor("$BERTH_STDIN");
const SCRIPT_WITHOUT_STDIN = scriptFor("/dev/null");

/** Whether {@link spawnPiped} can serve a request: the image is known to have the shell that opens the pipes. */
export function takesPipes({ argv, terminal }: SpawnRequest): boolean {
  return argv[0] === "/bin/sh" && terminal === undefined;
}

/**
 * Starts a process whose standard streams are named pipes. Fails with a
 * `BerthError` where the daemon does, and with another error where the pipes
 * fail, in which case the daemon's own streams may work.
 */
export async function spawnPiped(
  daemon: Daemon,
  gate: StartGate,
  process: ExecStart,
  pipes: ProcessPipes,
): Promise<PipedProcess> {
  const { request, sink, leftovers, signal } = process;
  const early = startSignal(request, signal);
  let leave: (() => void) | undefined;
  let opened: OpenedPipes | undefined;
  let state: ExecState | undefined;
  try {
    leave = await gate.enter(process.containerId, early);
    opened = openPipes(pipes, request.stdin);
    if (request.input) opened.ends.stdin?.write(request.input);
    const argv = ["/bin/sh", "-c", request.stdin ? SCRIPT : SCRIPT_WITHOUT_STDIN, "sh", ...request.argv];
    const { stdin, stdout, stderr } = pipes.inside;
    const env = { ...request.env, BERTH_STDIN: stdin, BERTH_STDOUT: stdout, BERTH_STDERR: stderr };
    const exec = await createExec(daemon, process, { ...request, argv, env, attached: false }, early);
    throwIfAborted(early);
    state = new ExecState(daemon, exec.id);
    await start(daemon, exec, signal);
    await untilOpened(state, opened.stdout, signal);
    opened.release();
    leave();
    const spawned = new PipedProcess(state, pipes, opened.ends, sink, leftovers);
    spawned.resume();
    return spawned;
  } catch (error) {
    abandon(pipes, opened);
    // Docker goes on with a start that its caller has given up.
    if (state !== undefined) void state.startOver().finally(leave);
    else leave?.();
    throw error;
  }
}

/** The service's ends of a process's pipes. */
export interface OpenedPipes {
  readonly ends: PipeEnds;
  readonly stdout: Socket;
  /** Closes what keeps the pipes alive until the process has opened them. */
  readonly release: () => void;
}

export function openPipes(pipes: ProcessPipes, withStdin: boolean): OpenedPipes {
  const fds: number[] = [];
  const open = (file: string, mode: number): number => {
    const fd = openPipe(file, mode);
    fds.push(fd);
    return fd;
  };
  try {
    // An end that is opened alone would see EOF or EPIPE at once.
    const names = [pipes.stdout, pipes.stderr, ...(withStdin ? [pipes.stdin] : [])];
    const keepers = names.map((file) => open(file, constants.O_RDWR));
    const input = withStdin ? open(pipes.stdin, constants.O_WRONLY) : undefined;
    const [output, errors] = [open(pipes.stdout, constants.O_RDONLY), open(pipes.stderr, constants.O_RDONLY)];
    const stdout = pipeSocket(output, "readable");
    const ends: PipeEnds = {
      stdin: input === undefined ? undefined : pipeSocket(input, "writable"),
      outputs: [
        { stream: "stdout", socket: stdout },
        { stream: "stderr", socket: pipeSocket(errors, "readable") },
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

/** Gives up pipes that the other side may yet open: a shell that comes late finds no name, and one halfway in gets EOF. */
export function abandon(pipes: PipePaths, opened: OpenedPipes | undefined): void {
  abandonPipes(pipes);
  if (opened === undefined) return;
  const {
    ends: { stdin, outputs },
    release,
  } = opened;
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

/** Waits for the byte by which the shell reports that it has opened its pipes, and takes it from the output. */
export async function untilOpened(
  state: { inspect(signal?: AbortSignal): Promise<{ Running: boolean; ExitCode: number | null }> },
  stdout: Readable,
  signal: AbortSignal | undefined,
): Promise<void> {
  const opened = Promise.withResolvers<"open">();
  let isOpen = false;
  const onData = (chunk: Buffer): void => {
    stdout.off("data", onData).pause();
    if (chunk.length > 1) stdout.unshift(chunk.subarray(1));
    isOpen = true;
    opened.resolve("open");
  };
  stdout.on("data", onData);
  const deadline = performance.now() + OPEN_TIMEOUT_MS;
  let problem = `the shell did not open its pipes in ${OPEN_TIMEOUT_MS} ms`;
  try {
    for (let pauseMs = 50; performance.now() < deadline; pauseMs = Math.min(pauseMs * 1.5, 1000)) {
      const next = Promise.race([opened.promise, sleep(pauseMs)]);
      if ((await untilAborted(next, signal)) === "open") return;
      const { Running: running, ExitCode: code } = await state.inspect(signal);
      if (running || code === null) continue;
      problem = `the shell ended with ${code} before it opened its pipes`;
      break;
    }
    // What has opened them meanwhile has left its byte there, and must not run again.
    await untilPolled();
  } finally {
    stdout.off("data", onData);
  }
  if (!isOpen) throw new Error(problem);
}

/** Waits until what had arrived on any descriptor has been read. */
async function untilPolled(): Promise<void> {
  // The first comes at the end of the event loop's turn, the second after it has polled again.
  for (let i = 0; i < 2; i++) await setImmediate();
}

/** Removes the names of pipes that were given up, and gives EOF to whoever has opened them. */
function abandonPipes({ stdin, stdout, stderr }: PipePaths): void {
  for (const file of [stdout, stderr]) unlink(file, () => {});
  new StdinCloser(stdin, () => unlink(stdin, () => {})).start();
}

/** A running process whose standard streams are pipes of Berth's own. Paused until {@link resume} is called. */
export class PipedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #state: ProcessState;
  readonly #streams: PipeStreams;
  readonly #stdinCloser: StdinCloser;
  #dropped = false;

  /** @param pipes is removed when the output has ended. */
  constructor(state: ProcessState, pipes: PipePaths, ends: PipeEnds, sink: OutputSink, leftovers: Leftovers) {
    this.handle = formatHandle(state, pipes);
    this.#state = state;
    this.#stdinCloser = new StdinCloser(pipes.stdin);
    this.#streams = new PipeStreams(ends, sink, leftovers, () => state.whyEnded());
    void this.ended.then(() => {
      this.#stdinCloser.stop();
      // Others may hold pipes that were dropped: a later run of the service goes on reading them.
      if (!this.#dropped) removePipes(pipes);
    });
  }

  /** Settles, never rejects, when its output has ended. */
  get ended(): Promise<void> {
    return this.#streams.silent;
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
    this.#stdinCloser.startOnce();
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
    this.#stdinCloser.start();
  }

  /** Drops the pipes too. Whoever still writes, or has reported its end, then blocks until a later run of the service reads on. */
  destroy(): void {
    this.#dropped = true;
    this.#stdinCloser.stop();
    this.#streams.close(canceled());
    this.#streams.destroy();
  }
}
