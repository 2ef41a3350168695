import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Exec, ExecInspectInfo } from "dockerode";
import { rest } from "../../base/async.ts";
import { BerthError, hasReason } from "../../base/errors.ts";
import type { SharedResult } from "../../base/shared-result.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { stdinClosed } from "../pipe-streams.ts";
import type { OutputSink, SpawnedProcess, SpawnRequest } from "../port.ts";
import type { Daemon } from "./daemon.ts";
import { translateError } from "./errors.ts";
import type { PipeNames, PipePaths } from "./named-pipes.ts";

/** How long an abandoned start may still take effect. */
const LATE_START_MS = 2_000;
/** Docker also reports this exit code for a process whose output it could not deliver. */
export const UNDELIVERED = 126;

/** A process to start in a container by `exec`. */
export interface ExecStart {
  readonly containerId: string;
  /** Name or `uid[:gid]`; empty: root. */
  readonly user: string;
  readonly request: SpawnRequest;
  readonly sink: OutputSink;
  readonly leftovers: Leftovers;
  readonly signal: AbortSignal | undefined;
}

/**
 * Creates an `exec` in a container, in the directory `/`, without starting it.
 * @param request `attached`: whether its standard streams go through the daemon.
 */
export function createExec(
  daemon: Daemon,
  { containerId, user }: Pick<ExecStart, "containerId" | "user">,
  { argv, env, stdin, terminal, attached }: SpawnRequest & { readonly attached: boolean },
  signal?: AbortSignal,
): Promise<Exec> {
  return daemon.call(
    "preparing a process",
    (docker, abortSignal) =>
      docker.getContainer(containerId).exec({
        Cmd: [...argv],
        Env: Object.entries(env ?? {}).map(([name, value]) => `${name}=${value}`),
        // Root by its number, because an image need not have /etc/passwd.
        User: user || "0",
        WorkingDir: "/",
        AttachStdin: attached && stdin,
        AttachStdout: attached,
        AttachStderr: attached,
        Tty: terminal !== undefined,
        // Daemons before API 1.42 ignore this. For them the size is set after the start.
        ...(terminal ? { ConsoleSize: [terminal.rows, terminal.columns] } : {}),
        abortSignal,
      }),
    { signal },
  );
}

/** The state of a process, apart from its streams. */
export interface ProcessState {
  /** Identifies it to a later run of the service. */
  readonly handle: string;
  /**
   * The exit code, once the process has ended.
   * @param outputEnded settles when its output has ended; undefined: nobody reads it. The process may end earlier.
   */
  exitCode(outputEnded: SharedResult<void> | undefined, signal?: AbortSignal): Promise<number>;
  /**
   * Why the output ended; undefined if it is complete. The streams themselves do not show it: they also end cleanly if
   * the daemon or the container dies.
   */
  whyEnded(): Promise<Error | undefined>;
}

/** The state of an `exec`, as the daemon knows it. */
export class ExecState implements ProcessState {
  /** The daemon's id of the `exec`. */
  readonly handle: string;
  readonly #daemon: Daemon;

  constructor(daemon: Daemon, id: string) {
    this.#daemon = daemon;
    this.handle = id;
  }

  inspect(signal?: AbortSignal): Promise<ExecInspectInfo> {
    return this.#daemon.call(
      "asking for a process's state",
      (docker, abortSignal) => docker.getExec(this.handle).inspect({ abortSignal }),
      { signal },
    );
  }

  /** Waits until a start has taken effect, or is no longer expected to. Never rejects. */
  async startOver(): Promise<void> {
    const deadline = performance.now() + LATE_START_MS;
    try {
      while (performance.now() < deadline) {
        const state = await this.inspect();
        if (state.Pid > 0 || state.ExitCode !== null) return;
        await sleep(50);
      }
    } catch {
      // The container is gone, or Docker is, so nothing will start.
    }
  }

  /**
   * Polls the daemon, more often after `outputEnded`. Before that, polls without an answer about the process do not count:
   * that the daemon fails, or that the service may open no more files, does not end the process.
   */
  async exitCode(outputEnded: SharedResult<void> | undefined, signal?: AbortSignal): Promise<number> {
    const start = performance.now();
    /** Ends a long pause: the output has ended, or nobody waits for the exit code any more. */
    const hurry = new AbortController();
    const onEnd = (): void => hurry.abort();
    outputEnded?.wait(hurry.signal).then(onEnd, onEnd);
    const pause = signal === undefined ? hurry.signal : AbortSignal.any([signal, hurry.signal]);
    try {
      for (let checksAfterEnd = 0; ; ) {
        const mayFail = outputEnded?.settled === false;
        const state = await this.inspect(signal).catch((error: unknown) => {
          const isAbsent = hasReason(error, "ENGINE_UNAVAILABLE") || hasReason(error, "TOO_MANY_OPERATIONS");
          if (!mayFail || !isAbsent) throw error;
          return undefined;
        });
        if (state?.Running === false && state.ExitCode !== null) return state.ExitCode;
        if (outputEnded?.settled) await rest(Math.min(2 ** checksAfterEnd++, 500), signal);
        else await rest(checkDelayMs(performance.now() - start), pause);
      }
    } finally {
      hurry.abort();
    }
  }

  async whyEnded(): Promise<Error | undefined> {
    try {
      await this.inspect();
      return undefined;
    } catch (error) {
      return translateError(error, "streaming a process's output");
    }
  }
}

/**
 * Delay before the next poll while other processes may hold the process's pipes: short for young processes, long for
 * old ones. Almost every process ends its output, which ends the wait early.
 */
function checkDelayMs(elapsedMs: number): number {
  const maxMs = Math.min(Math.max(elapsedMs / 10, 250), 10_000);
  return Math.min(Math.max(elapsedMs / 4, 1), maxMs);
}

/** The contents of a process's handle. */
interface Handle {
  /** Handle of its {@link ProcessState}. */
  readonly state: string;
  /** Names of its pipes in its container's directory; undefined if its streams go through the daemon. */
  readonly pipes: PipeNames | undefined;
}

/** Makes the handle that identifies a process to a later run of the service. */
export function formatHandle({ handle }: ProcessState, pipes?: PipePaths): string {
  const names = pipes === undefined ? [] : [pipes.stdin, pipes.stdout, pipes.stderr];
  return [handle, ...names.map((pipe) => path.basename(pipe))].join(" ");
}

export function parseHandle(handle: string): Handle {
  const [state = "", stdin, stdout, stderr] = handle.split(" ");
  const pipes = stdin && stdout && stderr ? ([stdin, stdout, stderr] as const) : undefined;
  return { state, pipes };
}

/**
 * A process of an earlier run of the service that used the daemon's streams, or whose pipes are gone. Its output is
 * lost; Docker keeps its exit code for some minutes.
 */
export class DetachedProcess implements SpawnedProcess {
  readonly handle: string;
  readonly ended = Promise.resolve();
  readonly #state: ProcessState;

  constructor(state: ProcessState) {
    this.handle = formatHandle(state);
    this.#state = state;
  }

  pause(): void {}

  resume(): void {}

  trickle(): void {}

  async writeStdin(): Promise<void> {
    throw stdinClosed();
  }

  closeStdin(): void {}

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process's terminal is lost.");
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const code = await this.#state.exitCode(undefined, signal);
    if (code !== UNDELIVERED) return code;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      "The connection broke before the process's exit code arrived.",
    );
  }

  close(): void {}

  destroy(): void {}
}
