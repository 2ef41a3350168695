import { closeSync, constants, unlink } from "node:fs";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import type { Exec } from "dockerode";
import { untilAborted } from "../../base/async.ts";
import { BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import { SharedResult } from "../../base/shared-result.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { PipeSocket } from "../pipe-socket.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import { type OutputSink, type SpawnedProcess, type SpawnRequest, startSignal } from "../port.ts";
import type { ProcessPipes } from "./container-pipes.ts";
import type { Daemon } from "./daemon.ts";
import { createExec, type ExecStart, ExecState, formatHandle, type ProcessState } from "./exec.ts";
import { openPipe, type PipePaths, removePipes, StdinCloser } from "./named-pipes.ts";
import type { StartGate } from "./start-gate.ts";

/** How long a started shell may take to open its pipes. */
const OPEN_TIMEOUT_MS = 15_000;
/** How long a shell may still open abandoned pipes. */
const LATE_OPEN_MS = 5_000;

/**
 * Opens the pipes, reports that with one byte, and executes the program. Both outputs are also opened for reading, so
 * that a writer blocks while the service is down, instead of dying of SIGPIPE. The names are in variables, because any
 * user can read the arguments of a process, but only its own user can read its environment.
 */
const scriptFor = (stdin: string): string =>
  `exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR" <"${stdin}" && unset BERTH_STDIN BERTH_STDOUT BERTH_STDERR && printf . && exec "$@"`;
const SCRIPT = scriptFor("$BERTH_STDIN");
const SCRIPT_WITHOUT_STDIN = scriptFor("/dev/null");

/**
 * Whether {@link spawnPiped} can handle a request: only if it runs the shell that would also open the pipes, so that
 * the image is known to have it.
 */
export function takesPipes({ argv, terminal }: SpawnRequest): boolean {
  return argv[0] === "/bin/sh" && terminal === undefined;
}

/**
 * Starts a process whose standard streams are named pipes. Fails with a `BerthError` if the daemon fails, and with
 * another error if the pipes fail, in which case the daemon's own streams may work.
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
    // Docker continues a start that its caller has abandoned.
    if (state !== undefined) void state.startOver().finally(leave);
    else leave?.();
    throw error;
  }
}

/** The service's ends of a process's pipes. */
export interface OpenedPipes {
  readonly ends: PipeEnds;
  readonly stdout: Socket;
  /** Closes the descriptors that keep the pipes open until the process has opened them. */
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
    // With only one end open, it would see EOF or EPIPE at once.
    const names = [pipes.stdout, pipes.stderr, ...(withStdin ? [pipes.stdin] : [])];
    const keepers = names.map((file) => open(file, constants.O_RDWR));
    const input = withStdin ? open(pipes.stdin, constants.O_WRONLY) : undefined;
    const [output, errors] = [open(pipes.stdout, constants.O_RDONLY), open(pipes.stderr, constants.O_RDONLY)];
    const stdout = new PipeSocket(output, "readable");
    const ends: PipeEnds = {
      stdin: input === undefined ? undefined : new PipeSocket(input, "writable"),
      outputs: [
        { stream: "stdout", socket: stdout },
        { stream: "stderr", socket: new PipeSocket(errors, "readable") },
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

/**
 * Abandons pipes that the other side may yet open: a late shell finds no pipe, and one that has opened some gets EOF.
 */
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

/** Waits for the byte that the shell writes when it has opened its pipes, and removes it from the output. */
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
    // If the shell has opened them meanwhile, its byte is there now, and the program must not be started a second time.
    await untilPolled();
  } finally {
    stdout.off("data", onData);
  }
  if (!isOpen) throw new Error(problem);
}

/** Waits until everything that has arrived on any descriptor has been read. */
async function untilPolled(): Promise<void> {
  // The first fires at the end of this turn of the event loop, the second after the next poll.
  for (let i = 0; i < 2; i++) await setImmediate();
}

/** Removes the names of abandoned pipes, and gives EOF to processes that have opened them. */
function abandonPipes({ stdin, stdout, stderr }: PipePaths): void {
  for (const file of [stdout, stderr]) unlink(file, () => {});
  new StdinCloser(stdin, () => unlink(stdin, () => {})).start();
}

/** A running process whose standard streams are Berth's pipes. Paused until {@link resume} is called. */
export class PipedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #state: ProcessState;
  readonly #streams: PipeStreams;
  readonly #stdinCloser: StdinCloser;
  readonly #outputEnded: SharedResult<void>;
  #dropped = false;

  /** @param pipes removed when the output has ended. */
  constructor(state: ProcessState, pipes: PipePaths, ends: PipeEnds, sink: OutputSink, leftovers: Leftovers) {
    this.handle = formatHandle(state, pipes);
    this.#state = state;
    this.#stdinCloser = new StdinCloser(pipes.stdin);
    this.#streams = new PipeStreams(ends, sink, leftovers, () => state.whyEnded());
    this.#outputEnded = new SharedResult(this.ended);
    void this.ended.then(() => {
      this.#stdinCloser.stop();
      // Keep dropped pipes: processes may hold them, and a later run of the service continues to read them.
      if (!this.#dropped) removePipes(pipes);
    });
  }

  /** Resolves when its output has ended. Never rejects. */
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
    const code = await this.#state.exitCode(this.#outputEnded, signal);
    this.#streams.abandonStdin();
    return code;
  }

  close(): void {
    this.#streams.close(canceled());
    this.#stdinCloser.start();
  }

  /**
   * Drops the pipes too. Processes that still write, or shells that have reported their end, then block until a later
   * run of the service reads the pipes.
   */
  destroy(): void {
    this.#dropped = true;
    this.#stdinCloser.stop();
    this.#streams.close(canceled());
    this.#streams.destroy();
  }
}
