import { closeSync, constants, openSync } from "node:fs";
import path from "node:path";

/** Names of the three pipes of a process, in its container's directory. Each is random: none tells another. */
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

/** How soon somebody who opens an ended stdin once more meets its end. */
const FIRST_KNOCK_MS = 2;
const MAX_KNOCK_MS = 250;

/**
 * Unlike other pipes, one with a name lets nobody open it for reading while
 * nobody has it open for writing. So whoever opens /dev/stdin after its end
 * would wait for ever, were it not opened for a moment now and then. A shell
 * whose job has ended waits in the same way until a service can read what it told.
 */
export class Knocks {
  readonly #pipe: string;
  readonly #onOver: () => void;
  #timer: NodeJS.Timeout | undefined;
  #over = false;

  /**
   * @param pipe the path of a stdin.
   * @param onOver called once nobody can open it any more.
   */
  constructor(pipe: string, onOver: () => void = () => {}) {
    this.#pipe = pipe;
    this.#onOver = onOver;
  }

  /** Begins to knock, or to do so as often as in the beginning. */
  begin(): void {
    clearTimeout(this.#timer);
    this.#knock(FIRST_KNOCK_MS);
  }

  /** Where it has not begun yet. */
  beginOnce(): void {
    if (this.#timer === undefined) this.begin();
  }

  stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
  }

  #knock(delayMs: number): void {
    if (this.#over) return;
    this.#timer = setTimeout(() => {
      try {
        closeSync(openSync(this.#pipe, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW));
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // Nobody has it open for reading, or it has no name any more: nobody can open it again.
        if (code === "ENXIO" || code === "ENOENT") {
          this.stop();
          return this.#onOver();
        }
      }
      this.#knock(Math.min(delayMs * 2, MAX_KNOCK_MS));
    }, delayMs).unref();
  }
}
