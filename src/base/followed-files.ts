import type { BigIntStats } from "node:fs";
import { stat } from "node:fs/promises";

/** Interval of polling, in milliseconds. */
const POLL_MS = 200;

/**
 * Files that the operator may replace while the service runs. They are polled, because watching a path misses changes
 * behind symbolic links, which is how Kubernetes updates secrets, and on network file systems.
 */
export class FollowedFiles {
  readonly #paths: readonly string[];
  /** Versions of the files: when they were last read, and at the previous poll. */
  #read: string;
  #seen: string;
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

  /** Calls back whenever the files have changed, until {@link stop}. @param onChange must not reject */
  follow(onChange: () => Promise<void>): void {
    this.#timer = setTimeout(() => {
      this.#looking = this.#look(onChange).finally(() => {
        if (this.#timer !== undefined) this.follow(onChange);
      });
    }, POLL_MS);
    this.#timer.unref();
  }

  /** Resolves when no callback runs any more. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#looking;
  }

  async #look(onChange: () => Promise<void>): Promise<void> {
    const version = await versionOf(this.#paths);
    // Files that are written in place are read only once they have stopped changing: half of a file may be valid.
    const rests = version === this.#seen;
    this.#seen = version;
    if (!rests || version === this.#read) return;
    this.#read = version;
    await onChange();
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
