import { rest, untilAborted, within } from "../../base/async.ts";
import { BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import { SharedResult } from "../../base/shared-result.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { isAlive, statOf } from "../outside/host-process.ts";
import type { PipeSocket } from "../pipe-socket.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import {
  type OutputSink,
  type SpawnedProcess,
  type SpawnRequest,
  startSignal,
  type TerminalSize,
} from "../port.ts";
import { terminated, translateError } from "./errors.ts";
import { entryArguments, JOB_FDS, JOB_REPORT, type Job, jobScript } from "./job-script.ts";
import { endSoon, type Launcher, openPipes, type Started } from "./launcher.ts";
import type { BubblewrapSandbox } from "./sandbox.ts";

interface SpawnParts {
  readonly launcher: Launcher;
  readonly limits: Job["limits"];
  readonly leftovers: Leftovers;
  /** As in {@link entryArguments}. */
  readonly entryFile: string | undefined;
}

/** How much output of a process that does not start to keep. Its shell's report is shorter. */
const MAX_REPORT_CHARS = 2048;
/** How long to read what a shell that does not start its program says: code in the sandbox may keep its pipes open. */
const REST_MS = 1000;

/** How long an attendant may take to start. After that it is considered unable to enter. */
const ENTER_MS = 20_000;
/** How often {@link BubblewrapProcess.wait} checks that its attendant is alive. */
const LOOK_MS = 1000;

/**
 * Starts a process in a sandbox. An attendant enters the outer user namespace from the host, and its child enters the
 * rest of the sandbox, where a shell reads the script that executes the program.
 *
 * If the pid of process 1 has been reused, entering fails, because the outer namespace gives rights only over its own
 * namespaces.
 */
export async function spawnProcess(
  sandbox: BubblewrapSandbox,
  request: SpawnRequest,
  sink: OutputSink,
  parts: SpawnParts,
  signal?: AbortSignal,
): Promise<BubblewrapProcess> {
  const early = startSignal(request, signal);
  throwIfAborted(early);
  const { argv, terminal, stdin } = request;
  const entry = {
    ...{ userNamespace: sandbox.enter(), initPid: sandbox.initPid, joinFiles: sandbox.group.joinFiles },
    entryFile: parts.entryFile,
    ...{ stdin, terminal: terminal !== undefined },
  };
  const script = jobScript({ argv, env: { ...sandbox.env, ...request.env }, terminal, limits: parts.limits });
  const attendant = await startAttendant(sandbox, (tag) => entryArguments({ ...entry, tag }), parts, early);
  const streams = openStreams(attendant, request);
  try {
    sandbox.enter();
    throwIfAborted(early);
    streams.script.end(script);
    if (request.input !== undefined) streams.stdin?.write(request.input);
    const report = await reportOf(streams.stdout, signal);
    if (report[0] !== JOB_REPORT.started) throw await startError(sandbox, request, report, streams);
    const spawned = new BubblewrapProcess(
      attendant,
      { stdin: streams.stdin, outputs: outputsOf(streams) },
      sink,
      parts.leftovers,
      terminal && ((size) => resizeTerminal(sandbox, report.slice(1), size, parts)),
    );
    sandbox.attend(attendant);
    spawned.resume();
    return spawned;
  } catch (error) {
    giveUp(streams);
    throw error;
  }
}

interface JobStreams {
  readonly script: PipeSocket;
  readonly stdin: PipeSocket | undefined;
  readonly stdout: PipeSocket;
  /** Undefined with a terminal, whose output is one stream. */
  readonly stderr: PipeSocket | undefined;
}

/** Resolves when an attendant has started. An attendant that starts after this has failed is ended. */
async function startAttendant(
  sandbox: BubblewrapSandbox,
  args: (tag: number) => string[],
  { launcher }: SpawnParts,
  signal: AbortSignal | undefined,
): Promise<Started> {
  const failed = new AbortController();
  const doing = "starting a process";
  const late = translateError(new Error("the sandbox could not be entered"), doing);
  const timer = setTimeout(() => failed.abort(late), ENTER_MS);
  const unwatch = sandbox.onEnd(() => failed.abort(terminated()));
  try {
    const limit = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal]);
    return await launcher.start(args, limit);
  } catch (error) {
    throw translateError(error, doing);
  } finally {
    clearTimeout(timer);
    unwatch();
  }
}

function openStreams(
  attendant: Started,
  { stdin, terminal }: Pick<SpawnRequest, "stdin" | "terminal">,
): JobStreams {
  try {
    return openPipes(attendant, ({ reader, writer }) => ({
      script: writer(JOB_FDS.script),
      stdin: stdin ? writer(JOB_FDS.stdin) : undefined,
      stdout: reader(JOB_FDS.stdout),
      stderr: terminal ? undefined : reader(JOB_FDS.stderr),
    }));
  } catch (error) {
    throw translateError(error, "opening pipes");
  }
}

/** The shell inside waits for its script, and does not continue until its report is read. */
function giveUp({ script, stdin, stdout, stderr }: JobStreams): void {
  if (script.writable) script.end("exit\n");
  for (const stream of [stdin, stdout, stderr]) stream?.destroy();
}

function outputsOf({ stdout, stderr }: JobStreams) {
  return [
    { stream: "stdout" as const, socket: stdout },
    ...(stderr ? [{ stream: "stderr" as const, socket: stderr }] : []),
  ];
}

/**
 * Reads the report of the shell inside, without its last character; empty if there was none: other code in the sandbox
 * may write to its pipe instead. The rest of the stream is the program's output.
 */
async function reportOf(stdout: PipeSocket, signal: AbortSignal | undefined): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const onClose = () => resolve("");
  let output = Buffer.alloc(0);
  const onData = (chunk: Buffer) => {
    output = Buffer.concat([output, chunk]);
    const end = output.indexOf(";");
    if (end < 0 && output.length > MAX_REPORT_CHARS) resolve("");
    if (end < 0) return;
    stdout.pause();
    if (end + 1 < output.length) stdout.unshift(output.subarray(end + 1));
    resolve(output.toString("latin1", 0, end));
  };
  stdout.on("data", onData).once("close", onClose);
  try {
    return await untilAborted(promise, signal);
  } finally {
    stdout.off("data", onData).off("close", onClose);
  }
}

async function startError(
  sandbox: BubblewrapSandbox,
  request: SpawnRequest,
  report: string,
  streams: JobStreams,
): Promise<BerthError> {
  if (report[0] === JOB_REPORT.failed) return programMissing(request.argv[0] ?? "", report.slice(1));
  if (report[0] === JOB_REPORT.noTerminal) {
    return new BerthError(
      "UNSUPPORTED",
      "The system of the sandboxes has no program `script`, which makes terminals. Ask the operator to install it: apt-get install bsdutils, or dnf install util-linux-script.",
    );
  }
  const output = await Promise.all(outputsOf(streams).map(({ socket }) => readRest(socket)));
  if (!sandbox.running) return terminated();
  const cause = new Error(output.join("").trim());
  if (
    cause.message === "" ||
    /fork|resource temporarily|cannot allocate|no space left/i.test(cause.message)
  ) {
    return new BerthError(
      "TOO_MANY_OPERATIONS",
      "The process could not be started: the sandbox has reached its limit of processes or memory.",
      { cause, retryAfterMs: 1000 },
    );
  }
  return translateError(cause, "starting a process");
}

/** @param exitCode what a shell would exit with. */
function programMissing(program: string, exitCode: string): BerthError {
  const problem = exitCode === "127" ? "no such program" : "it cannot be run";
  return new BerthError("INVALID_ARGUMENT", `argv: ${JSON.stringify(program)}: ${problem}.`, {
    metadata: { field: "argv", exit_code: exitCode },
  });
}

/** Reads a stream to its end, or for a moment. */
async function readRest(socket: PipeSocket): Promise<string> {
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text = (text + chunk.toString("latin1")).slice(-MAX_REPORT_CHARS);
  });
  socket.resume();
  if (!socket.closed) await within(new Promise((resolve) => socket.once("close", resolve)), REST_MS);
  return text;
}

async function resizeTerminal(
  sandbox: BubblewrapSandbox,
  tty: string,
  size: TerminalSize,
  parts: SpawnParts,
): Promise<void> {
  if (!/^\/dev\/pts\/\d+$/.test(tty))
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
  const argv = ["stty", "-F", tty, "cols", String(size.columns), "rows", String(size.rows)];
  const stty = await spawnProcess(sandbox, { argv, stdin: false }, { data() {}, end() {} }, parts);
  if ((await stty.wait()) !== 0)
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
}

/** A process in a sandbox, over its pipes. Paused until {@link resume} is called. */
export class BubblewrapProcess implements SpawnedProcess {
  /** The process ends with the service. */
  readonly handle = undefined;
  readonly #attendant: Started;
  readonly #resizeTerminal: ((size: TerminalSize) => Promise<void>) | undefined;
  readonly #streams: PipeStreams;
  readonly #exited: SharedResult<number>;

  /**
   * @param attendant waits for the process, outside the sandbox, and reports its end.
   * @param resizeTerminal undefined without a terminal.
   */
  constructor(
    attendant: Started,
    ends: PipeEnds,
    sink: OutputSink,
    leftovers: Leftovers,
    resizeTerminal?: (size: TerminalSize) => Promise<void>,
  ) {
    this.#attendant = attendant;
    this.#resizeTerminal = resizeTerminal;
    this.#streams = new PipeStreams(ends, sink, leftovers);
    this.#exited = new SharedResult(attendant.code);
    void attendant.code.then(() => this.#streams.abandonStdin());
  }

  /** Resolves when no process holds its output pipes any more. Never rejects. */
  get silent(): Promise<void> {
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
  }

  async resize(size: TerminalSize): Promise<void> {
    if (this.#exited.settled || this.#resizeTerminal === undefined) {
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.");
    }
    await this.#resizeTerminal(size);
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const over = new AbortController();
    try {
      const ends = [this.#exited.wait(over.signal), this.#attendantLost(over.signal)];
      return await untilAborted(Promise.race(ends), signal);
    } finally {
      over.abort();
    }
  }

  close(): void {
    this.#streams.close(canceled());
    // The program around a terminal may be stopped, and is in the tree of no process.
    if (this.#resizeTerminal !== undefined && !this.#exited.settled) endSoon(this.#attendant);
  }

  /** Closes the pipes without regard for processes that write to them. */
  destroy(): void {
    this.close();
    this.#streams.destroy();
  }

  /** Resolves, as if the process was killed, once no attendant is left to report its end. */
  async #attendantLost(signal: AbortSignal): Promise<number> {
    const { pid } = this.#attendant;
    for (let missing = 0; missing < 2 && !signal.aborted; ) {
      await rest(LOOK_MS, signal);
      // A report that is on its way arrives before the second check.
      const state = statOf(pid)?.[0] ?? (isAlive(pid) ? "unknown" : "X");
      missing = /[ZX]/.test(state) ? missing + 1 : 0;
    }
    return 137;
  }
}
