import { closeSync, constants, openSync, unlink } from "node:fs";
import path from "node:path";

/** Where a container sees its directory of pipes. */
export const PIPES_TARGET = "/run/berth-pipes";

/** Names of the three pipes of a process in its container's directory. Each is random, so none reveals another. */
export type PipeNames = readonly [stdin: string, stdout: string, stderr: string];

/** The paths of the named pipes of one process. */
export interface PipePaths {
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
}

export function pathsIn(directory: string, [stdin, stdout, stderr]: PipeNames): PipePaths {
  const pathOf = (name: string): string => path.join(directory, name);
  return { stdin: pathOf(stdin), stdout: pathOf(stdout), stderr: pathOf(stderr) };
}

/** Opens one end of a named pipe without waiting for the other. */
export function openPipe(file: string, mode: number): number {
  return openSync(file, mode | constants.O_NONBLOCK | constants.O_NOFOLLOW);
}

/**
 * Removes a process's pipes. Their names are needed until both sides have opened them, and for a later run of the
 * service until they are drained.
 */
export function removePipes({ stdin, stdout, stderr }: PipePaths): void {
  for (const file of [stdin, stdout, stderr]) unlink(file, () => {});
}

/** Bounds of how soon a reader that reopens a closed stdin gets EOF. */
const MIN_PAUSE_MS = 2;
const MAX_PAUSE_MS = 250;

/**
 * Keeps giving EOF to readers that reopen a closed stdin. Opening a named pipe for reading blocks until it is open for
 * writing, so this opens it briefly from time to time. That also releases a shell whose job has ended and which waits
 * in the same way for a service to read its report.
 */
export class StdinCloser {
  readonly #pipe: string;
  readonly #onUnused: () => void;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /**
   * @param pipe the path of the stdin.
   * @param onUnused called once no process can open it any more.
   */
  constructor(pipe: string, onUnused: () => void = () => {}) {
    this.#pipe = pipe;
    this.#onUnused = onUnused;
  }

  /** Starts, or restarts with the shortest pause. */
  start(): void {
    clearTimeout(this.#timer);
    this.#open(MIN_PAUSE_MS);
  }

  /** Starts unless already started. */
  startOnce(): void {
    if (this.#timer === undefined) this.start();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #open(pauseMs: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      try {
        closeSync(openPipe(this.#pipe, constants.O_WRONLY));
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // No reader has it open, or its name is gone, so no process can open it again.
        if (code === "ENXIO" || code === "ENOENT") {
          this.stop();
          return this.#onUnused();
        }
      }
      this.#open(Math.min(pauseMs * 2, MAX_PAUSE_MS));
    }, pauseMs).unref();
  }
}
