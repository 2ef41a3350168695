import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Exec } from "dockerode";
import { BerthError, throwIfAborted } from "../../base/errors.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import type { OutputSink, SpawnRequest } from "../port.ts";
import { startSignal } from "../start-signal.ts";
import type { Daemon } from "./daemon.ts";
import { DockerProcess } from "./docker-process.ts";
import { daemonWords } from "./errors.ts";
import { ExecState, prepareExec } from "./exec-state.ts";
import type { StartGate } from "./start-gate.ts";

/** How long Docker may take from accepting a process to running it. */
const START_TIMEOUT_MS = 30_000;

/**
 * Starts a process by `exec` in a container. Returns when it is known to run
 * (or to have run), because Docker answers before it tries and reports a
 * failure to start as if it were the process's output.
 *
 * It starts in `/`: a working directory is never given to Docker, since the
 * runtime resolves it with descriptors of its own open (CVE-2024-21626).
 */
export async function spawnProcess(
  daemon: Daemon,
  gate: StartGate,
  containerId: string,
  /** Name or `uid[:gid]`; empty: root. */
  user: string,
  request: SpawnRequest,
  sink: OutputSink,
  leftovers: Leftovers,
  signal?: AbortSignal,
): Promise<DockerProcess> {
  const early = startSignal(request, signal);
  const leave = await gate.enter(containerId, early);
  let exec: Exec | undefined;
  try {
    const prepared = await prepareExec(daemon, containerId, user, { ...request, attached: true }, early);
    throwIfAborted(early);
    exec = prepared;
    const spawned = await start(daemon, exec, request, sink, leftovers, signal);
    leave();
    return spawned;
  } catch (error) {
    // Docker goes on with a start that its caller has given up.
    if (exec) void new ExecState(daemon, exec.id).startOver().finally(leave);
    else leave();
    throw error;
  }
}

async function start(
  daemon: Daemon,
  exec: Exec,
  request: SpawnRequest,
  sink: OutputSink,
  leftovers: Leftovers,
  signal?: AbortSignal,
): Promise<DockerProcess> {
  const tty = request.terminal !== undefined;
  const socket = await daemon.call(
    "starting a process",
    async (_, abortSignal) => {
      const opened = await exec.start({ hijack: true, stdin: request.stdin, Tty: tty, abortSignal });
      if (abortSignal.aborted) opened.destroy();
      return opened;
    },
    { signal },
  );
  try {
    if (request.input) socket.write(request.input);
    await proveStarted(daemon, exec, socket, tty, signal);
    const spawned = new DockerProcess(daemon, exec, socket, { tty, stdin: request.stdin }, sink, leftovers);
    // A process that has ended already needs no terminal.
    if (request.terminal) await spawned.resize(request.terminal).catch(() => {});
    spawned.resume();
    return spawned;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/**
 * Waits until the process runs, without losing what it writes. Its first bytes
 * prove it, unless they could be Docker's own report (which ends in CR LF);
 * then, and while it is silent, Docker is asked: a process that started has a
 * pid, one that could not has an exit code and none.
 */
async function proveStarted(daemon: Daemon, exec: Exec, socket: Duplex, tty: boolean, signal?: AbortSignal) {
  const deadline = performance.now() + START_TIMEOUT_MS;
  const first = peek(socket);
  try {
    for (let pauseMs = 10; performance.now() < deadline; pauseMs = Math.min(pauseMs * 1.25, 250)) {
      const chunk = await Promise.race([first.chunk, sleep(pauseMs)]);
      if (chunk && !chunk.subarray(-2).equals(CR_LF)) return;
      const state = await daemon.call(
        "asking for a process's state",
        (_, abortSignal) => exec.inspect({ abortSignal }),
        { signal },
      );
      if (state.Pid > 0) return;
      if (state.ExitCode !== null) {
        const report = (await Promise.race([first.chunk, sleep(1000)])) ?? Buffer.alloc(0);
        throw startError(daemonWords(report.toString("utf8", tty ? 0 : 8)));
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

/** Looks at a stream's first bytes, which stay in it; null where it ends without any. Pauses it when stopped. */
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
  // Who reads the stream next learns of an error from its state.
  socket.on("error", () => resolve(null));
  return { chunk: promise, stop };
}

function startError(report: string): BerthError {
  const cause = new Error(report);
  if (/unable to find (user|group)|no matching entries in|uids and gids must be/i.test(report)) {
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
  // What becomes of the runtime when the sandbox's cgroup lets it have no process or no memory.
  if (/init-p|procready|resource temporarily unavailable|cannot allocate|signal: killed|EOF/i.test(report)) {
    return new BerthError(
      "TOO_MANY_OPERATIONS",
      "The process could not be started: the sandbox has reached its bound of processes or memory.",
      { cause, retryAfterMs: 1000 },
    );
  }
  return new BerthError("ENGINE_UNAVAILABLE", `Docker could not start the process: ${report}`, { cause });
}

/** `exit_code` is what a shell would have ended with. */
function commandError(report: string, exitCode: string, cause: Error): BerthError {
  return new BerthError("INVALID_ARGUMENT", `argv: ${report}`, {
    metadata: { field: "argv", exit_code: exitCode },
    cause,
  });
}
