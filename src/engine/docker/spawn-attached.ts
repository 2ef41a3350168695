import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Exec } from "dockerode";
import { BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import { SharedResult } from "../../base/shared-result.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { stdinClosed, Writers } from "../pipe-streams.ts";
import { type OutputSink, type SpawnedProcess, startSignal, type TerminalSize } from "../port.ts";
import { type Daemon, Demux } from "./daemon.ts";
import { answerTo, daemonWords, translateError } from "./errors.ts";
import { createExec, type ExecStart, ExecState, formatHandle, UNDELIVERED } from "./exec.ts";
import type { StartGate } from "./start-gate.ts";

/** How long Docker may take from accepting a process to running it. */
const START_TIMEOUT_MS = 30_000;

/**
 * Starts a process whose standard streams go through the daemon. Returns when it is known to run or to have run. Docker
 * answers before it tries to start the process, and reports a failed start as if it were the process's output.
 *
 * It starts in `/`. Docker never gets a working directory, because the runtime resolves it while its own descriptors
 * are open (CVE-2024-21626).
 */
export async function spawnAttached(
  daemon: Daemon,
  gate: StartGate,
  process: ExecStart,
): Promise<AttachedProcess> {
  const { request, signal } = process;
  const early = startSignal(request, signal);
  const leave = await gate.enter(process.containerId, early);
  let exec: Exec | undefined;
  try {
    const created = await createExec(daemon, process, { ...request, attached: true }, early);
    throwIfAborted(early);
    exec = created;
    const spawned = await start(daemon, exec, process);
    leave();
    return spawned;
  } catch (error) {
    // Docker continues a start that its caller has abandoned.
    if (exec) void new ExecState(daemon, exec.id).startOver().finally(leave);
    else leave();
    throw error;
  }
}

async function start(
  daemon: Daemon,
  exec: Exec,
  { request, sink, leftovers, signal }: ExecStart,
): Promise<AttachedProcess> {
  const tty = request.terminal !== undefined;
  const socket = await daemon
    .call(
      "starting a process",
      async (_, abortSignal) => {
        const opened = await exec.start({ hijack: true, stdin: request.stdin, Tty: tty, abortSignal });
        if (abortSignal.aborted) opened.destroy();
        return opened;
      },
      { signal },
    )
    .catch((error: BerthError) => {
      // Podman refuses here; Docker reports the same failure as output.
      const words = answerTo(error)?.text ?? "";
      throw NO_SUCH_USER.test(words) ? startError(daemonWords(words)) : error;
    });
  const writes = readPastWrites(socket);
  try {
    if (request.input) socket.write(request.input);
    await proveStarted(daemon, exec, socket, tty, signal);
    const streams = { socket, writes, tty, stdin: request.stdin };
    const spawned = new AttachedProcess(daemon, exec, streams, sink, leftovers);
    // A process that has already ended needs no terminal size.
    if (request.terminal) await spawned.resize(request.terminal).catch(() => {});
    spawned.resume();
    return spawned;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/**
 * Waits until the process runs, without losing its output. Its first bytes prove that it runs, unless they could be the
 * daemon's own report. In that case, and while it is silent, Docker is polled: a process that started has a pid; one
 * that failed to start has an exit code but no pid.
 */
async function proveStarted(daemon: Daemon, exec: Exec, socket: Duplex, tty: boolean, signal?: AbortSignal) {
  const deadline = performance.now() + START_TIMEOUT_MS;
  const first = peek(socket);
  try {
    for (let pauseMs = 10; performance.now() < deadline; pauseMs = Math.min(pauseMs * 1.25, 250)) {
      const chunk = await Promise.race([first.chunk, sleep(pauseMs)]);
      if (chunk && !maybeReport(chunk, tty)) return;
      const state = await daemon.call(
        "asking for a process's state",
        (_, abortSignal) => exec.inspect({ abortSignal }),
        { signal },
      );
      if (state.Pid > 0) return;
      // Podman reports no pid for an ended process, and exit code 0 also before the start.
      if (state.ExitCode === 0 && chunk !== undefined) return;
      if (state.ExitCode !== null && state.ExitCode !== 0) {
        const output = (await Promise.race([first.chunk, sleep(1000)])) ?? Buffer.alloc(0);
        const report = output.toString("utf8", tty ? 0 : HEADER_BYTES);
        if ((await daemon.isPodman()) && !report.startsWith(PODMAN_REPORT)) return;
        throw startError(daemonWords(report));
      }
      if (chunk !== undefined) await sleep(pauseMs);
    }
  } finally {
    first.stop();
  }
  throw new BerthError("ENGINE_UNAVAILABLE", "Docker did not start the process in time.", {
    retryAfterMs: 1000,
  });
}

const CR_LF = Buffer.from("\r\n");
/** Size of the frame header before the first bytes, if there is no terminal. */
const HEADER_BYTES = 8;
const PODMAN_REPORT = "Error: ";

/** Whether output may be a report of the daemon: Docker's end with CR LF, Podman's start with a fixed prefix. */
function maybeReport(output: Buffer, tty: boolean): boolean {
  const at = tty ? 0 : HEADER_BYTES;
  const begin = output.toString("latin1", at, at + PODMAN_REPORT.length);
  return output.subarray(-2).equals(CR_LF) || begin === PODMAN_REPORT;
}

/** Reads the first bytes of a stream without consuming them; null if it ends without any. `stop` pauses the stream. */
function peek(socket: Duplex): { readonly chunk: Promise<Buffer | null>; readonly stop: () => void } {
  const { promise, resolve } = Promise.withResolvers<Buffer | null>();
  const onData = (chunk: Buffer) => {
    stop();
    socket.unshift(chunk);
    resolve(chunk);
  };
  const stop = () => {
    socket.off("data", onData);
    socket.pause();
  };
  socket.on("data", onData);
  socket.once("close", () => resolve(null));
  // The next reader sees an error in the stream's state.
  socket.on("error", () => resolve(null));
  return { chunk: promise, stop };
}

const NO_SUCH_USER = /unable to find (user|group)|no matching entries in|uids and gids must be/i;

function startError(report: string): BerthError {
  const cause = new Error(report);
  if (NO_SUCH_USER.test(report)) {
    return new BerthError("INVALID_ARGUMENT", `user: ${report}`, { metadata: { field: "user" }, cause });
  }
  if (/executable file not found|no such file or directory/i.test(report)) {
    return commandError(report, "127", cause);
  }
  if (/permission denied|exec format error|is a directory/i.test(report)) {
    return commandError(report, "126", cause);
  }
  if (/container .*(not running|stopped)|no running task|not found: unknown/i.test(report)) {
    return new BerthError("SANDBOX_TERMINATED", "The sandbox's container no longer runs.", { cause });
  }
  // The runtime fails like this when the sandbox's control group has no process or memory left for it.
  if (/init-p|procready|resource temporarily unavailable|cannot allocate|signal: killed|EOF/i.test(report)) {
    return new BerthError(
      "TOO_MANY_OPERATIONS",
      "The process could not be started: the sandbox has reached its limit of processes or memory.",
      { cause, retryAfterMs: 1000 },
    );
  }
  return new BerthError("ENGINE_UNAVAILABLE", `Docker could not start the process: ${report}`, { cause });
}

/** @param exitCode what a shell would exit with. */
function commandError(report: string, exitCode: string, cause: Error): BerthError {
  return new BerthError("INVALID_ARGUMENT", `argv: ${report}`, {
    metadata: { field: "argv", exit_code: exitCode },
    cause,
  });
}

interface Writes {
  readonly failed: boolean;
}

/** Keeps a stream readable after a write fails: the process has ended then, but its output may still be unread. */
function readPastWrites(socket: Duplex): Writes {
  const writes = { failed: false };
  const write = socket._write.bind(socket);
  const writev = socket._writev?.bind(socket);
  const calm = (done: () => void) => (error?: Error | null) => {
    writes.failed ||= error != null;
    done();
  };
  socket._write = (chunk, encoding, done) => write(chunk, encoding, calm(done));
  if (writev) socket._writev = (chunks, done) => writev(chunks, calm(done));
  return writes;
}

interface AttachedStreams {
  readonly socket: Duplex;
  readonly writes: Writes;
  readonly tty: boolean;
  readonly stdin: boolean;
}

/** A running `exec` with its hijacked connection. Paused until {@link resume} is called. */
class AttachedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly #daemon: Daemon;
  readonly #exec: Exec;
  readonly #state: ExecState;
  readonly #socket: Duplex;
  readonly #takesStdin: boolean;
  readonly #writes: Writes;
  /** Resolves when the connection has ended. Never rejects. */
  readonly ended: Promise<void>;
  readonly #outputEnded: SharedResult<void>;
  /** Undefined once its `end` was called. */
  #sink: OutputSink | undefined;
  readonly #leftovers: Leftovers;
  readonly #writers = new Writers();
  /** Stops the slow drain of the output. */
  #stopDrain = (): void => {};
  #closed = false;

  constructor(
    daemon: Daemon,
    exec: Exec,
    { socket, writes, tty, stdin }: AttachedStreams,
    sink: OutputSink,
    leftovers: Leftovers,
  ) {
    this.#daemon = daemon;
    this.#exec = exec;
    this.#state = new ExecState(daemon, exec.id);
    this.handle = formatHandle(this.#state);
    this.#socket = socket;
    this.#writes = writes;
    this.#takesStdin = stdin;
    this.#sink = sink;
    this.#leftovers = leftovers;
    socket.pause();
    const demux = new Demux((stream, chunk) => this.#sink?.data(stream, chunk));
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ended = promise;
    this.#outputEnded = new SharedResult(promise);
    const take = tty
      ? (chunk: Buffer) => this.#sink?.data("stdout", chunk)
      : (chunk: Buffer) => demux.push(chunk);
    const finish = async () => {
      // The rest must not arrive twice: as an event, too.
      socket.off("end", finish).off("close", finish).off("data", take);
      // A reset may come while the stream is paused, and leaves what has arrived before it in the stream.
      const rest: Buffer | null = socket.read();
      if (rest !== null) take(rest);
      // Pending writes have no reader.
      socket.destroy();
      this.#writers.giveUp();
      this.#end(await this.#whyEnded(demux.insideFrame));
      resolve();
    };
    socket.on("data", take);
    if (socket.closed || socket.readableEnded) void finish();
    else socket.on("end", finish).on("close", finish);
  }

  pause(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#socket.pause();
  }

  resume(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#socket.resume();
  }

  trickle(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#stopDrain = this.#leftovers.drain(this.#socket);
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    if (!this.#takesStdin || !this.#isWritable) throw stdinClosed();
    // Not a race with `ended`, which would keep something of every write until the process ends.
    await this.#writers.write(this.#socket, data);
    if (this.#socket.destroyed || this.#writes.failed) throw stdinClosed();
  }

  closeStdin(): void {
    if (this.#takesStdin && this.#isWritable) this.#socket.end();
  }

  get #isWritable(): boolean {
    return this.#socket.writable && !this.#writes.failed;
  }

  async resize(size: TerminalSize): Promise<void> {
    try {
      await this.#daemon.call("resizing a terminal", (_, abortSignal) =>
        this.#exec.resize({ w: size.columns, h: size.rows, abortSignal }),
      );
    } catch (error) {
      const answer = answerTo(error);
      if (answer === undefined) throw error;
      // Podman answers 201 for success.
      if (answer.statusCode === 201) return;
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.", { cause: error });
    }
  }

  async wait(signal?: AbortSignal): Promise<number> {
    return this.#trusted(await this.#state.exitCode(this.#outputEnded, signal));
  }

  /** Why the output ended; undefined if it is complete. */
  async #whyEnded(insideFrame: boolean): Promise<Error | undefined> {
    const isOver = this.#socket.readableEnded || (await this.#wasReset());
    if (isOver && !insideFrame) return this.#state.whyEnded();
    return translateError(this.#socket.errored, "streaming a process's output");
  }

  /**
   * Whether Docker closed the connection while it contained unread stdin. A Unix socket then reports a reset instead of
   * EOF, after everything that Docker had written has been read. Podman closes before it has written everything.
   */
  async #wasReset(): Promise<boolean> {
    const { errored, readableLength } = this.#socket;
    const isReset = (errored as NodeJS.ErrnoException | null)?.code === "ECONNRESET" && readableLength === 0;
    if (!isReset || this.#daemon.socketPath === undefined) return false;
    // A daemon that does not answer proves nothing.
    return !(await this.#daemon.isPodman().catch(() => true));
  }

  /** Throws for an exit code that may be Docker's own. */
  #trusted(exitCode: number): number {
    if (exitCode !== UNDELIVERED || this.#socket.readableEnded || !this.#socket.destroyed) return exitCode;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      "The connection to the process broke, so how it ended is lost.",
    );
  }

  /**
   * Keeps draining the output, because Docker would report a wrong exit code for a process that writes to a closed
   * connection.
   */
  close(reason: Error = canceled()): void {
    this.#end(reason);
    this.closeStdin();
    if (this.#closed) return;
    this.trickle();
    this.#closed = true;
    this.#leftovers.keep({ silent: this.ended, destroy: () => this.#socket.destroy() });
  }

  /** Closes the connection, even if the exit code becomes wrong. */
  destroy(reason?: Error): void {
    this.close(reason);
    this.#socket.destroy();
  }

  #end(error?: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(error);
  }
}
