import { type ChildProcess, spawn } from "node:child_process";
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { abortError, BerthError, throwIfAborted } from "../../core/errors.ts";
import type { OutputSink, SpawnRequest, TerminalSize } from "../../core/ports/engine.ts";
import type { Box } from "./box.ts";
import { BubblewrapProcess } from "./bubblewrap-process.ts";
import { terminated, translateError } from "./errors.ts";
import { HOST_ENV, hostCommand } from "./host-command.ts";
import type { Identity } from "./identity.ts";
import { JOB_COMMAND, JOB_FDS, JOB_REPORT, type Job, jobScript } from "./job-script.ts";
import type { PipeEnds, Pipes } from "./pipes.ts";

/** What {@link spawnProcess} works with. */
export interface SpawnParts {
  readonly pipes: Pipes;
  readonly identity: Identity;
  /** As in {@link Job}. */
  readonly bounds: Job["bounds"];
  /** Takes a process of the host's out of the sandbox's bounds. */
  readonly dismiss: (pid: number) => Promise<void>;
}

/** What a process that does not start may print. */
const MAX_REPORT_CHARS = 2048;

/**
 * Starts a process in a sandbox: a command of the host's enters its user
 * namespace, then the others and the inner user namespace, and becomes the
 * attendant of the process inside. It loses every right on the way in, by
 * becoming a program as a user that is not root there.
 *
 * The number of process 1 may be somebody else's by now; then the entering
 * fails, for the outer namespace gives rights over its own ones alone.
 */
export async function spawnProcess(
  box: Box,
  request: SpawnRequest,
  sink: OutputSink,
  parts: SpawnParts,
  signal?: AbortSignal,
): Promise<BubblewrapProcess> {
  throwIfAborted(signal);
  const userNamespace = box.enter();
  const terminal = request.terminal;
  const env = { ...box.env, ...request.env };
  const script = jobScript({ argv: request.argv, env, terminal, bounds: parts.bounds });
  const pipes = await openPipes(parts.pipes, request);
  let attendant: ChildProcess;
  try {
    throwIfAborted(signal);
    box.enter();
    attendant = startAttendant(box, userNamespace, pipes, parts);
  } catch (error) {
    for (const pipe of pipes.all) closeSync(pipe.parent);
    throw translateError(error, "starting a process");
  } finally {
    for (const pipe of pipes.all) closeSync(pipe.child);
  }
  const sockets = openSockets(pipes);
  sockets.script.end(script);
  if (request.input !== undefined) sockets.stdin?.write(request.input);
  try {
    const report = await reportOf(attendant, signal);
    if (report[0] !== JOB_REPORT.started) throw await startError(box, request, report, sockets);
    const spawned = new BubblewrapProcess(
      {
        attendant,
        ends: sockets,
        resizeTerminal: terminal && ((size) => resizeTerminal(box, report.slice(1), size, parts)),
      },
      sink,
    );
    box.attend(attendant);
    if (attendant.pid !== undefined) void parts.dismiss(attendant.pid);
    spawned.resume();
    return spawned;
  } catch (error) {
    // Before its report is read, the shell inside goes no further.
    attendant.kill("SIGKILL");
    for (const { socket } of sockets.outputs) socket.destroy();
    sockets.script.destroy();
    sockets.stdin?.destroy();
    throw error;
  }
}

interface JobPipes {
  readonly script: PipeEnds;
  readonly stdin: PipeEnds | undefined;
  readonly stdout: PipeEnds;
  /** Undefined with a terminal, whose output is one stream. */
  readonly stderr: PipeEnds | undefined;
  readonly all: readonly PipeEnds[];
}

async function openPipes(pipes: Pipes, { stdin, terminal }: SpawnRequest): Promise<JobPipes> {
  const all: PipeEnds[] = [];
  const open = async (opening: Promise<PipeEnds>): Promise<PipeEnds> => {
    const ends = await opening;
    all.push(ends);
    return ends;
  };
  try {
    return {
      script: await open(pipes.toChild()),
      stdin: stdin ? await open(pipes.toChild()) : undefined,
      stdout: await open(pipes.fromChild()),
      stderr: terminal ? undefined : await open(pipes.fromChild()),
      all,
    };
  } catch (error) {
    for (const fd of all.flatMap(({ child, parent }) => [child, parent])) closeSync(fd);
    throw translateError(error, "opening pipes");
  }
}

type JobSockets = ReturnType<typeof openSockets>;

function openSockets({ script, stdin, stdout, stderr }: JobPipes) {
  const input = (ends: PipeEnds): Socket => {
    const socket = new Socket({ fd: ends.parent, readable: false, writable: true });
    return socket.on("error", () => {});
  };
  const output = (stream: "stdout" | "stderr", ends: PipeEnds) => {
    const socket = new Socket({ fd: ends.parent, readable: true, writable: false });
    return { stream, socket: socket.on("error", () => {}) };
  };
  return {
    script: input(script),
    stdin: stdin && input(stdin),
    outputs: [output("stdout", stdout), ...(stderr ? [output("stderr", stderr)] : [])],
  };
}

function startAttendant(box: Box, userNamespace: number, pipes: JobPipes, parts: SpawnParts): ChildProcess {
  const keep = "--preserve-credentials";
  const outer = ["nsenter", keep, `--user=/proc/self/fd/${JOB_FDS.userNamespace}`, "--"];
  const inner = ["nsenter", keep, "--target", String(box.initPid)];
  const namespaces = ["--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--"];
  const [program, args] = hostCommand(parts.identity, box.group.joinFiles, [
    ...outer,
    ...inner,
    ...namespaces,
    ...JOB_COMMAND,
  ]);
  const { stdin, stdout, stderr, script } = pipes;
  const attendant = spawn(program, args, {
    // In the order of JOB_FDS.
    stdio: [
      stdin?.child ?? "ignore",
      stdout.child,
      (stderr ?? stdout).child,
      "pipe",
      userNamespace,
      script.child,
    ],
    env: HOST_ENV,
    cwd: "/",
    detached: true,
  });
  attendant.on("error", () => {});
  return attendant;
}

/** What the shell inside says of the start, without its last character; empty where it never came to that. */
async function reportOf(attendant: ChildProcess, signal: AbortSignal | undefined): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = attendant.stdio[JOB_FDS.report] as Readable | null | undefined;
  const onAbort = () => signal && reject(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  let text = "";
  socket?.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
    if (text.includes(";")) resolve(text.slice(0, text.indexOf(";")));
  });
  socket?.once("error", () => resolve(""));
  socket?.once("close", () => resolve(""));
  attendant.once("error", (error) => reject(translateError(error, "starting a process")));
  try {
    return await promise;
  } finally {
    signal?.removeEventListener("abort", onAbort);
    socket?.destroy();
  }
}

async function startError(
  box: Box,
  request: SpawnRequest,
  report: string,
  { outputs }: JobSockets,
): Promise<BerthError> {
  if (report[0] === JOB_REPORT.failed) return programMissing(request.argv[0] ?? "", report.slice(1));
  if (report[0] === JOB_REPORT.noTerminal) {
    return new BerthError(
      "UNSUPPORTED",
      "The system of the sandboxes has no program `script`, which gives terminals. The operator can install it: apt-get install bsdutils, or dnf install util-linux-script.",
    );
  }
  const said = await Promise.all(outputs.map(({ socket }) => lastWords(socket)));
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

async function resizeTerminal(box: Box, tty: string, size: TerminalSize, parts: SpawnParts): Promise<void> {
  if (!/^\/dev\/pts\/\d+$/.test(tty))
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
  const argv = ["stty", "-F", tty, "cols", String(size.columns), "rows", String(size.rows)];
  const stty = await spawnProcess(box, { argv, stdin: false }, { data() {}, end() {} }, parts);
  if ((await stty.wait()) !== 0)
    throw new BerthError("PROCESS_STATE", "The process has no terminal any more.");
}
