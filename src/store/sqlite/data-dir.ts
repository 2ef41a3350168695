import { mkdirSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { BerthError } from "../../core/errors.ts";
import { isBusy } from "./errors.ts";

/** A data directory that is this service's alone while it is held. */
export class DataDir {
  readonly path: string;
  readonly #lock: DatabaseSync;

  private constructor(directory: string, lock: DatabaseSync) {
    this.path = directory;
    this.#lock = lock;
  }

  /**
   * Takes the directory, which is made where it is missing. The lock ends with
   * the process, however that ends.
   * @throws `INVALID_ARGUMENT` where it cannot be written or another service holds it, saying what to do.
   */
  static hold(directory: string): DataDir {
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
    } catch (error) {
      throw unusable(directory, error);
    }
    return new DataDir(directory, lockFile(directory));
  }

  /** Where a file of the directory is. */
  file(name: string): string {
    return path.join(this.path, name);
  }

  release(): void {
    this.#lock.close();
  }
}

/**
 * Node has no file locks of its own, and SQLite has: an exclusive transaction
 * on an empty database that is never written to.
 */
function lockFile(directory: string): DatabaseSync {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(path.join(directory, "lock"), { timeout: 0 });
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock?.close();
    if (!isBusy(error)) throw unusable(directory, error);
    throw new BerthError(
      "INVALID_ARGUMENT",
      `--data-dir: ${directory} is in use by another service. Stop that one, or give this one a directory of its own.`,
      { cause: error, metadata: { field: "data-dir" } },
    );
  }
}

/** Says that a directory cannot be written, and what to do. */
export function unusable(directory: string, cause: unknown): BerthError {
  const { code, errstr } = cause as { readonly code?: string; readonly errstr?: string };
  return new BerthError(
    "INVALID_ARGUMENT",
    `--data-dir: ${directory} cannot be used (${errstr ?? code ?? "unknown error"}). Make it writable, or name another with --data-dir.`,
    { cause, metadata: { field: "data-dir" } },
  );
}
