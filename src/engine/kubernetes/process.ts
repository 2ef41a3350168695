import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import { MarkerScanner, newNonce } from "../../base/markers.ts";
import { SharedResult } from "../../base/shared-result.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { stdinClosed } from "../pipe-streams.ts";
import {
  type OutputSink,
  type OutputStream,
  type SpawnedProcess,
  type SpawnRequest,
  startSignal,
  type TerminalSize,
} from "../port.ts";
import type { Api } from "./api.ts";
import { quoted } from "./errors.ts";
import { ExecSocket, type ExecStatus, exitCodeIn } from "./exec-socket.ts";
import { END_BYTE, endCommand, SPAWN, SPAWN_EXIT, spawnText } from "./scripts.ts";

/** How long a pod may take from accepting a process to running it. */
const START_TIMEOUT_MS = 30_000;
/**
 * How much a pod may write before it reports the start, besides a terminal's echo of the request. What comes beyond
 * that is read slowly: code in the sandbox may have replaced the shell that reports it, and all of this waits in memory.
 */
const MAX_EARLY_BYTES = 1 << 20;
/** What a chunk takes in memory besides its bytes. */
const BYTES_PER_CHUNK = 256;
/** Pauses between requests for the exit code of a process whose streams are slow. */
const FIRST_LOOK_MS = 250;
const MAX_LOOK_MS = 8_000;
const LOOK_TIMEOUT_MS = 10_000;
/**
 * How soon after a terminal's end the pod must confirm that the process is gone. A kubelet or runtime that crashed
 * takes longer to come back.
 */
const PROOF_MS = 1_500;

/** A process to start in a pod. */
interface SpawnStart {
  readonly api: Api;
  readonly pod: string;
  readonly user: string;
  readonly setsHome: boolean;
  readonly request: SpawnRequest;
  readonly sink: OutputSink;
  readonly leftovers: Leftovers;
  readonly signal: AbortSignal | undefined;
  /** Returns why a process of the pod could not be started, or why its exit was lost. */
  whyLost(status: ExecStatus | undefined): Promise<BerthError>;
}

/**
 * A pod's report about a start: the process runs, its user is unknown, or its program cannot be run, with the exit code
 * of a shell.
 */
type StartReport = { readonly pid: number } | "unknown-user" | { readonly exitCode: string };

/** Starts a process in a pod. Returns when it runs or has run. */
export async function spawnInPod(start: SpawnStart): Promise<SpawnedProcess> {
  const { api, pod, request, signal } = start;
  const early = startSignal(request, signal);
  const terminal = request.terminal !== undefined;
  const nonces = { endNonce: newNonce(), startNonce: newNonce() };
  const spawned = new PodProcess(start, nonces);
  const socket = await ExecSocket.open(
    api,
    pod,
    ["/bin/sh", SPAWN],
    { stdin: true, tty: terminal },
    spawned.events,
    early,
  );
  try {
    throwIfAborted(early);
    spawned.attach(socket);
    if (request.terminal) socket.resize(request.terminal);
    const { user, setsHome } = start;
    const { stdin, env = {}, argv } = request;
    const text = spawnText({ ...nonces, user, terminal, stdin, setsHome, env, argv });
    spawned.expectEcho(text.length);
    void socket.write(text);
    if (request.input) void spawned.writeStdin(request.input).catch(() => {});
    const limit = AbortSignal.timeout(START_TIMEOUT_MS);
    const report = await untilAborted(
      spawned.started,
      signal === undefined ? limit : AbortSignal.any([signal, limit]),
    ).catch((error: unknown) => {
      throw limit.aborted && !signal?.aborted ? startedLate(error) : error;
    });
    if (report === "unknown-user") throw unknownUser(user);
    if ("exitCode" in report) throw notRunnable(request.argv[0] ?? "", report.exitCode);
    return spawned;
  } catch (error) {
    socket.terminate();
    throw error;
  }
}

function startedLate(cause: unknown): BerthError {
  return new BerthError("ENGINE_UNAVAILABLE", "The sandbox's pod did not start the process in time.", {
    cause,
    retryAfterMs: 1000,
  });
}

function unknownUser(user: string): BerthError {
  return new BerthError(
    "INVALID_ARGUMENT",
    `user: the sandbox has no user or group ${JSON.stringify(user)}`,
    {
      metadata: { field: "user" },
    },
  );
}

function notRunnable(program: string, exitCode: string): BerthError {
  const why = exitCode === "126" ? "is not executable" : "is not in the sandbox";
  return new BerthError("INVALID_ARGUMENT", `argv: ${JSON.stringify(program)} ${why}`, {
    metadata: { field: "argv", exit_code: exitCode },
  });
}

/** A process that runs behind the streams of an exec. */
class PodProcess implements SpawnedProcess {
  /** No later run of the service can recover it: its streams cannot be opened again. */
  readonly handle = undefined;
  readonly #start: SpawnStart;
  readonly #terminal: boolean;
  readonly #started = Promise.withResolvers<StartReport>();
  readonly #startNonce: string;
  readonly #code = Promise.withResolvers<number>();
  readonly #exit = new SharedResult(this.#code.promise);
  readonly #silent = Promise.withResolvers<void>();
  readonly #output = new Output(() => this.#socket);
  readonly #startScanner: MarkerScanner;
  readonly #endScanners: Record<OutputStream, MarkerScanner>;
  /** Streams on which the end marker has not arrived yet. */
  readonly #open = new Set<OutputStream>(["stdout", "stderr"]);
  #socket: ExecSocket | undefined;
  #pid = 0;
  #hasEnded = false;
  #waiters = 0;
  #isSlow = false;
  #isLooking = false;
  /** Undefined once its `end` was called. */
  #sink: OutputSink | undefined;
  /** Calls of the sink to make once the caller has the process. */
  #early: (() => void)[] | undefined = [];
  /** How much may still come before the start until it is read slowly. */
  #earlyBytesLeft = MAX_EARLY_BYTES;
  #stopDrain = (): void => {};
  #closed = false;

  constructor(start: SpawnStart, nonces: { readonly endNonce: string; readonly startNonce: string }) {
    this.#start = start;
    this.#sink = start.sink;
    this.#startNonce = nonces.startNonce;
    this.#terminal = start.request.terminal !== undefined;
    // Drop what comes before the start: a terminal's echo, or a shell's error message.
    this.#startScanner = new MarkerScanner(nonces.startNonce, () => {});
    const scanner = (stream: OutputStream) =>
      new MarkerScanner(`${END_BYTE}${nonces.endNonce}`, (chunk) => this.#pass(stream, chunk));
    this.#endScanners = { stdout: scanner("stdout"), stderr: scanner("stderr") };
    this.#started.promise.catch(() => {});
  }

  readonly events = {
    data: (stream: OutputStream, chunk: Buffer): void => this.#take(stream, chunk),
    close: (status: ExecStatus | undefined): void => void this.#close(status),
  };

  get started(): Promise<StartReport> {
    return this.#started.promise;
  }

  attach(socket: ExecSocket): void {
    this.#socket = socket;
  }

  /** A terminal echoes a request of this size, and each of its control characters as two. */
  expectEcho(bytes: number): void {
    if (this.#terminal) this.#earlyBytesLeft += 2 * bytes;
  }

  pause(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#isSlow = true;
    this.#socket?.pause();
  }

  resume(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#isSlow = false;
    this.#socket?.resume();
  }

  trickle(): void {
    if (this.#closed) return;
    this.#stopDrain();
    this.#isSlow = true;
    this.#stopDrain = this.#start.leftovers.drain(this.#output);
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    const socket = this.#socket;
    if (!this.#start.request.stdin || !socket?.writable) throw stdinClosed();
    await socket.write(data);
    if (this.#hasEnded || !socket.writable) throw stdinClosed();
  }

  closeStdin(): void {
    if (this.#start.request.stdin) this.#socket?.closeStdin();
  }

  /** Asks the pod for the exit code while somebody waits for it and the streams are read too slowly to deliver it. */
  async #lookForEnd(): Promise<void> {
    if (this.#isLooking || this.#terminal) return;
    this.#isLooking = true;
    const { api, pod } = this.#start;
    for (
      let pauseMs = FIRST_LOOK_MS;
      this.#waiters > 0 && !this.#hasEnded;
      pauseMs = Math.min(pauseMs * 2, MAX_LOOK_MS)
    ) {
      await sleep(pauseMs, undefined, { ref: false });
      if (!this.#isSlow || this.#hasEnded) continue;
      const limit = AbortSignal.timeout(LOOK_TIMEOUT_MS);
      const outcome = await runPlain(api, pod, endCommand(this.#startNonce), limit).catch(() => undefined);
      const code = /^(\d+);$/.exec(outcome?.stdout ?? "")?.[1];
      if (code !== undefined) this.#onEnd(Number(code));
    }
    this.#isLooking = false;
  }

  async resize(size: TerminalSize): Promise<void> {
    if (!this.#terminal || this.#hasEnded) {
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.");
    }
    this.#socket?.resize(size);
  }

  async wait(signal?: AbortSignal): Promise<number> {
    this.#waiters++;
    void this.#lookForEnd();
    try {
      return await this.#exit.wait(signal);
    } finally {
      this.#waiters--;
    }
  }

  /** Keeps reading, because the end marker is in the output. */
  close(): void {
    this.#endSink(canceled());
    this.closeStdin();
    if (this.#closed) return;
    this.trickle();
    this.#closed = true;
    const destroy = (): void => this.#socket?.terminate();
    this.#start.leftovers.keep({ silent: this.#silent.promise, destroy });
  }

  #take(stream: OutputStream, chunk: Buffer): void {
    this.#output.emit("data", chunk);
    if (this.#pid === 0) {
      this.#earlyBytesLeft -= chunk.length + BYTES_PER_CHUNK;
      if (this.#earlyBytesLeft < 0 && !this.#isSlow) this.trickle();
    }
    if (stream === "stdout" && this.#pid === 0) {
      const found = this.#startScanner.push(chunk);
      if (found === undefined) return;
      this.#onStart(found.text);
      if (found.rest.length > 0 && this.#pid !== 0) this.#takeOutput(stream, found.rest);
      return;
    }
    this.#takeOutput(stream, chunk);
  }

  #onStart(text: string): void {
    if (text.startsWith("S")) {
      this.#pid = Number(text.slice(1));
      if (this.#isSlow) this.resume();
      this.#started.resolve({ pid: this.#pid });
      // The caller has the process once the microtasks of this turn have run.
      setImmediate(() => {
        const early = this.#early ?? [];
        this.#early = undefined;
        for (const pass of early) pass();
      });
    } else {
      this.#started.resolve(text === "U" ? "unknown-user" : { exitCode: text.slice(1) });
    }
  }

  #takeOutput(stream: OutputStream, chunk: Buffer): void {
    if (this.#terminal || !this.#open.has(stream)) {
      this.#pass(stream, chunk);
      return;
    }
    const found = this.#endScanners[stream].push(chunk);
    if (found === undefined) return;
    this.#open.delete(stream);
    this.#onEnd(Number(found.text.slice(1)));
    if (found.rest.length > 0) this.#pass(stream, found.rest);
  }

  #pass(stream: OutputStream, chunk: Buffer): void {
    if (this.#early === undefined) this.#sink?.data(stream, chunk);
    else this.#early.push(() => this.#sink?.data(stream, chunk));
  }

  /** The process itself has ended. Processes that it left behind may still hold its streams. */
  #onEnd(code: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#code.resolve(code);
    this.#socket?.abandonStdin();
  }

  async #close(status: ExecStatus | undefined): Promise<void> {
    this.#stopDrain();
    for (const scanner of Object.values(this.#endScanners)) scanner.flush();
    const error = await this.#whyClosed(status);
    this.#started.reject(error ?? startedLate(undefined));
    if (error) this.#code.reject(error);
    this.#hasEnded = true;
    this.#endSink(error);
    this.#silent.resolve();
  }

  /** Why the streams closed; undefined if they ended properly. */
  async #whyClosed(status: ExecStatus | undefined): Promise<Error | undefined> {
    const code = exitCodeIn(status);
    // The exit code alone proves nothing: root in the sandbox can replace the shell that reports the end.
    const isReported = this.#hasEnded && code === SPAWN_EXIT;
    if (!this.#terminal) return isReported ? undefined : this.#start.whyLost(status);
    if (code !== undefined) this.#code.resolve(code);
    else if (status?.status === "Success" && (await this.#isGone())) this.#code.resolve(0);
    else return this.#start.whyLost(status);
    return undefined;
  }

  /** Whether the pod confirms at once that it has no such process: then the process ended, not the connection. */
  async #isGone(): Promise<boolean> {
    const { api, pod } = this.#start;
    const script = `[ -d /proc/${this.#pid} ] && exit 3; exit 4`;
    return runPlain(api, pod, ["/bin/sh", "-c", script], AbortSignal.timeout(PROOF_MS)).then(
      ({ exitCode }) => exitCode === 4,
      () => false,
    );
  }

  #endSink(error?: Error): void {
    const end = (): void => {
      const sink = this.#sink;
      this.#sink = undefined;
      sink?.end(error);
    };
    // Keep the order of calls, even for a process that has already ended.
    if (this.#early !== undefined && this.#pid !== 0) this.#early.push(end);
    else end();
  }
}

/** Both outputs of a process as one stream, for a slow drain. */
class Output extends EventEmitter {
  readonly #socket: () => ExecSocket | undefined;

  constructor(socket: () => ExecSocket | undefined) {
    super();
    this.#socket = socket;
  }

  pause(): this {
    this.#socket()?.pause();
    return this;
  }

  resume(): this {
    this.#socket()?.resume();
    return this;
  }
}

/** The outcome of one of Berth's own short commands. */
interface PlainOutcome {
  readonly stdout: string;
  readonly stderr: string;
  /** Undefined if it is 0 or if the connection broke, so let the output prove success. */
  readonly exitCode: number | undefined;
  readonly status: ExecStatus | undefined;
}

const MAX_PLAIN_CHARS = 64 * 1024;
/**
 * Its connection is closed when it prints more than this, in bytes and chunks: code in the sandbox may have replaced its
 * shell.
 */
const MAX_PLAIN_BYTES = 1 << 20;

/** Runs one of Berth's own short commands in a pod, as root. */
export async function runPlain(
  api: Api,
  pod: string,
  command: readonly string[],
  signal?: AbortSignal,
): Promise<PlainOutcome> {
  const text = { stdout: "", stderr: "" };
  const { promise, resolve } = Promise.withResolvers<ExecStatus | undefined>();
  let bytes = 0;
  const socket = await ExecSocket.open(
    api,
    pod,
    command,
    { stdin: false, tty: false },
    {
      data: (stream, chunk) => {
        bytes += chunk.length + BYTES_PER_CHUNK;
        if (bytes > MAX_PLAIN_BYTES) resolve(undefined);
        else text[stream] = (text[stream] + chunk.toString("utf8")).slice(-MAX_PLAIN_CHARS);
      },
      close: resolve,
    },
    signal,
  );
  try {
    const status = await untilAborted(promise, signal);
    return { ...text, exitCode: exitCodeIn(status), status };
  } finally {
    socket.terminate();
  }
}

/** Why an exec failed that Kubernetes had accepted, in its words; undefined if it gives no cause. */
export function startError(status: ExecStatus | undefined): BerthError | undefined {
  const message = status?.message ?? "";
  if (status === undefined || status.status === "Success" || status.reason === "NonZeroExitCode")
    return undefined;
  const cause = new Error(message);
  // A runtime fails like this when the pod's control group has no process or memory left for it.
  if (
    /resource temporarily unavailable|cannot allocate|procready|signal: killed|cannot fork/i.test(message)
  ) {
    return new BerthError(
      "TOO_MANY_OPERATIONS",
      "The process could not be started: the sandbox has reached its limit of processes or memory.",
      { retryAfterMs: 1000, cause },
    );
  }
  if (/not running|not found|completed pod|stopped/i.test(message)) {
    return new BerthError("SANDBOX_TERMINATED", "The sandbox's pod is gone or no longer runs.", { cause });
  }
  return new BerthError("ENGINE_UNAVAILABLE", `Kubernetes could not start the process: ${quoted(message)}`, {
    retryAfterMs: 1000,
    cause,
  });
}
