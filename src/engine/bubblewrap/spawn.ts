import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { abortError, BerthError, canceled, throwIfAborted } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
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
import type { Launcher, Started } from "./launcher.ts";
import { stateOf } from "./process-tree.ts";
import type { BubblewrapSandbox } from "./sandbox.ts";
import { readerOf, writerOf } from "./shell-pipes.ts";

/** What {@link spawnProcess} works with. */
export interface SpawnParts {
  /** Starts attendants. */
  readonly launcher: Launcher;
  /** As in {@link Job}. */
  readonly bounds: Job["bounds"];
  readonly leftovers: Leftovers;
}

/** What a process that does not start may print. */
const MAX_REPORT_CHARS = 2048;

/** An attendant that has not begun by then cannot enter. */
const ENTER_MS = 20_000;

/**
 * Starts a process in a sandbox: an attendant enters the outer user namespace
 * from the host, and its child the rest of the sandbox, where a shell reads
 * what to become.
 *
 * The number of process 1 may be somebody else's by now; then the entering
 * fails, for the outer namespace gives rights over its own ones alone.
 */
export async function spawnProcess(
  box: BubblewrapSandbox,
  request: SpawnRequest,
  sink: OutputSink,
  parts: SpawnParts,
  signal?: AbortSignal,
): Promise<BubblewrapProcess> {
  const early = startSignal(request, signal);
  throwIfAborted(early);
  const { argv, terminal, stdin } = request;
  const entry = {
    ...{ userNamespace: box.enter(), initPid: box.initPid, joinFiles: box.group.joinFiles },
    ...{ stdin, terminal: terminal !== undefined },
  };
  const script = jobScript({ argv, env: { ...box.env, ...request.env }, terminal, bounds: parts.bounds });
  const attendant = await startAttendant(box, (tag) => entryArguments({ ...entry, tag }), parts, early);
  const streams = openStreams(attendant, request);
  try {
    box.enter();
    throwIfAborted(early);
    streams.script.end(script);
    if (request.input !== undefined) streams.stdin?.write(request.input);
    const report = await reportOf(streams.stdout, signal);
    if (report[0] !== JOB_REPORT.started) throw await startError(box, request, report, streams);
    const spawned = new BubblewrapProcess(
      {
        attendant,
        ends: { stdin: streams.stdin, outputs: outputsOf(streams) },
        resizeTerminal: terminal && ((size) => resizeTerminal(box, report.slice(1), size, parts)),
      },
      sink,
      parts.leftovers,
    );
    box.attend(attendant);
    spawned.resume();
    return spawned;
  } catch (error) {
    giveUp(streams);
    throw error;
  }
}

interface JobStreams {
  readonly script: Socket;
  readonly stdin: Socket | undefined;
  readonly stdout: Socket;
  /** Undefined with a terminal, whose output is one stream. */
  readonly stderr: Socket | undefined;
}

/** Resolves when an attendant has begun. One that begins later than it is waited for is sent away. */
async function startAttendant(
  box: BubblewrapSandbox,
  args: (tag: number) => string[],
  { launcher }: SpawnParts,
  signal: AbortSignal | undefined,
): Promise<Started> {
  const starting = launcher.start(args);
  const given = Promise.withResolvers<never>();
  const late = new Error("the sandbox could not be entered");
  const timer = setTimeout(() => given.reject(late), ENTER_MS);
  const onAbort = () => signal && given.reject(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  const unwatch = box.onEnd(() => given.reject(terminated()));
  try {
    return await Promise.race([starting, given.promise]);
  } catch (error) {
    starting.then((attendant) => giveUp(openStreams(attendant, { stdin: false }))).catch(() => {});
    throw translateError(error, "starting a process");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    unwatch();
  }
}

function openStreams(
  { pid }: Started,
  { stdin, terminal }: Pick<SpawnRequest, "stdin" | "terminal">,
): JobStreams {
  const opened: Socket[] = [];
  const open = (end: typeof readerOf, fd: number): Socket => {
    const socket = end(pid, fd);
    opened.push(socket);
    return socket;
  };
  try {
    return {
      script: open(writerOf, JOB_FDS.script),
      stdin: stdin ? open(writerOf, JOB_FDS.stdin) : undefined,
      stdout: open(readerOf, JOB_FDS.stdout),
      stderr: terminal ? undefined : open(readerOf, JOB_FDS.stderr),
    };
  } catch (error) {
    for (const socket of opened) socket.destroy();
    throw translateError(error, "opening pipes");
  }
}

/** Before its script is there, the shell inside waits; before its report is read, it goes no further. */
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

/** What the shell inside says of the start, without its last character; empty where it never came to that. The rest is the program's. */
async function reportOf(stdout: Socket, signal: AbortSignal | undefined): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const onAbort = () => signal && reject(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  const onClose = () => resolve("");
  let said = Buffer.alloc(0);
  const onData = (chunk: Buffer) => {
    said = Buffer.concat([said, chunk]);
    const end = said.indexOf(";");
    if (end < 0) return;
    stdout.pause();
    if (end + 1 < said.length) stdout.unshift(said.subarray(end + 1));
    resolve(said.toString("latin1", 0, end));
  };
  stdout.on("data", onData).once("close", onClose);
  try {
    return await promise;
  } finally {
    signal?.removeEventListener("abort", onAbort);
    stdout.off("data", onData).off("close", onClose);
  }
}

async function startError(
  box: BubblewrapSandbox,
  request: SpawnRequest,
  report: string,
  streams: JobStreams,
): Promise<BerthError> {
  if (report[0] === JOB_REPORT.failed) return programMissing(request.argv[0] ?? "", report.slice(1));
  if (report[0] === JOB_REPORT.noTerminal) {
    return new BerthError(
      "UNSUPPORTED",
      "The system of the sandboxes has no program `script`, which gives terminals. The operator can install it: apt-get install bsdutils, or dnf install util-linux-script.",
    );
  }
  const said = await Promise.all(outputsOf(streams).map(({ socket }) => lastWords(socket)));
  if (!box.running) return terminated();
  const cause = new Error(said.join("").trim());
  if (
    cause.message === "" ||
    /fork|resource temporarily|cannot allocate|no space left/i.test(cause.message)
  ) {
    return new BerthError(
      "TOO_MANY_OPERATIONS",
      "The process could not be started: the sandbox has reached its bound of processes or memory.",
      { cause, retryAfterMs: 1000 },
    );
  }
  return translateError(cause, "starting a process");
}

/** `exit_code` is what a shell would have ended with. */
function programMissing(program: string, exitCode: string): BerthError {
  const problem = exitCode === "127" ? "no such program" : "it cannot be run";
  return new BerthError("INVALID_ARGUMENT", `argv: ${JSON.stringify(program)}: ${problem}.`, {
    metadata: { field: "argv", exit_code: exitCode },
  });
}

/** All that is still to come of a stream. */
async function lastWords(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text = (text + chunk.toString("latin1")).slice(-MAX_REPORT_CHARS);
  });
  socket.resume();
  if (!socket.closed) await new Promise((resolve) => socket.once("close", resolve));
  return text;
}

async function resizeTerminal(
  box: BubblewrapSandbox,
  tty: string,
  size: TerminalSize,
  parts: SpawnParts,
): Promise<void> {
  if (!/^\/dev\/pts\/\d+$/.test(tty))
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
  const argv = ["stty", "-F", tty, "cols", String(size.columns), "rows", String(size.rows)];
  const stty = await spawnProcess(box, { argv, stdin: false }, { data() {}, end() {} }, parts);
  if ((await stty.wait()) !== 0)
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
}

/** How often it is looked at whether an attendant is left that can tell an end. */
const LOOK_MS = 1000;

/** The parts of a {@link BubblewrapProcess}. */
export interface ProcessParts {
  /** Waits, outside, for the process inside, and reports its end. */
  readonly attendant: Started;
  readonly ends: PipeEnds;
  /** Sets the size of its terminal; undefined without one. */
  readonly resizeTerminal: ((size: TerminalSize) => Promise<void>) | undefined;
}

/** A process inside, behind its pipes. Paused until {@link resume} is called. */
export class BubblewrapProcess implements SpawnedProcess {
  /** It ends with the service. */
  readonly handle = undefined;
  readonly #parts: ProcessParts;
  readonly #streams: PipeStreams;
  /** Resolves with its exit code. */
  readonly #exited: Promise<number>;
  #hasExited = false;

  constructor(parts: ProcessParts, sink: OutputSink, leftovers: Leftovers) {
    this.#parts = parts;
    this.#streams = new PipeStreams(parts.ends, sink, leftovers);
    this.#exited = parts.attendant.code;
    void this.#exited.then(() => {
      this.#hasExited = true;
      this.#streams.abandonStdin();
    });
  }

  /** Settles, never rejects, when nobody holds its output pipes any more. */
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
    const { resizeTerminal } = this.#parts;
    if (this.#hasExited || resizeTerminal === undefined) {
      throw new BerthError("PROCESS_STATE", "The process has ended or has no terminal.");
    }
    await resizeTerminal(size);
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const over = new AbortController();
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => signal && aborted.reject(abortError(signal));
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
    try {
      return await Promise.race([this.#exited, aborted.promise, this.#attendantLost(over.signal)]);
    } finally {
      over.abort();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  close(): void {
    this.#streams.close(canceled());
  }

  /** Lets go of the pipes, whatever that makes of those who write to them. */
  destroy(): void {
    this.close();
    this.#streams.destroy();
  }

  /** Resolves, as for a process that was killed, when there is nobody any more who could report its end. */
  async #attendantLost(signal: AbortSignal): Promise<number> {
    const { pid } = this.#parts.attendant;
    for (let missing = 0; missing < 2 && !signal.aborted; ) {
      await sleep(LOOK_MS, undefined, { signal, ref: false }).catch(() => {});
      // A report that is under way comes before the second look.
      missing = /[ZX]/.test(stateOf(pid) ?? "X") ? missing + 1 : 0;
    }
    return 137;
  }
}
