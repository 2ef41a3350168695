import type { BigIntStats } from "node:fs";
import { stat } from "node:fs/promises";

/** Interval of polling, in milliseconds. */
const POLL_MS = 200;
/**
 * How long after a failure unchanged files are read again, in milliseconds: it may have been a passing one, such as no
 * free descriptor.
 */
export const RETRY_MS = 5_000;

interface Follower {
  /** Reads the changed files and uses them. Rejects if they cannot be used. */
  readonly read: () => Promise<void>;
  /** Receives why that failed, but not again while unchanged files fail in the same way. */
  readonly onProblem: (problem: string) => void;
}

/**
 * Files that the operator may replace while the service runs. They are polled, because watching a path misses changes
 * behind symbolic links, which is how Kubernetes updates secrets, and on network file systems.
 */
export class FollowedFiles {
  readonly #paths: readonly string[];
  /** Versions of the files: when they were last read, and at the previous poll. */
  #read: string;
  #seen: string;
  #retryAt = Number.POSITIVE_INFINITY;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();

  private constructor(paths: readonly string[], version: string) {
    this.#paths = paths;
    this.#read = version;
    this.#seen = version;
  }

  /**
   * Records the current version of the files. Read them after this, and then {@link follow} them, so that no change is
   * missed.
   */
  static async note(paths: readonly string[]): Promise<FollowedFiles> {
    return new FollowedFiles(paths, await versionOf(paths));
  }

  /** Whether the files have changed and cannot be used. */
  get isStale(): boolean {
    return this.#problem !== undefined;
  }

  /** Has the files read whenever they have changed, and again while they cannot be used, until {@link stop}. */
  follow(follower: Follower): void {
    this.#timer = setTimeout(() => {
      this.#looking = this.#look(follower).finally(() => {
        if (this.#timer !== undefined) this.follow(follower);
      });
    }, POLL_MS);
    this.#timer.unref();
  }

  /** Resolves when nothing is read any more. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#looking;
  }

  async #look({ read, onProblem }: Follower): Promise<void> {
    const version = await versionOf(this.#paths);
    // Files that are written in place are read only once they have stopped changing: half of a file may be valid.
    const rests = version === this.#seen;
    this.#seen = version;
    const isRetry = version === this.#read;
    if (!rests || (isRetry && performance.now() < this.#retryAt)) return;
    this.#read = version;
    try {
      await read();
      this.#retryAt = Number.POSITIVE_INFINITY;
      this.#problem = undefined;
    } catch (error) {
      // What fails after the stop does not count.
      if (this.#timer === undefined) return;
      this.#retryAt = performance.now() + RETRY_MS;
      const problem = error instanceof Error ? error.message : String(error);
      const isKnown = isRetry && problem === this.#problem;
      this.#problem = problem;
      if (!isKnown) onProblem(problem);
    }
  }
}

/** A version of the files, which differs after any change. */
async function versionOf(paths: readonly string[]): Promise<string> {
  const found = await Promise.all(paths.map((path) => stat(path, { bigint: true }).catch(() => undefined)));
  return found.map((stats) => (stats === undefined ? "" : identityOf(stats))).join("\n");
}

/** Identifies the content of a file: differs after any change. */
export function identityOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
}
