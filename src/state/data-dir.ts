import { chmodSync, closeSync, openSync, statSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { BerthError } from "../base/errors.ts";
import { makePrivate, type PrivateDirectory } from "../base/private-directory.ts";
import { isBusy } from "./errors.ts";

const DATABASE = "berth.db";
const LOCK = "lock";
/** A file of SQLite's, and those that it makes beside it with the same mode. */
const filesOf = (file: string) => ["", "-journal", "-wal", "-shm"].map((end) => file + end);
/** What the service has in its data directory. */
const ENTRIES = new Set([
  ...[...filesOf(DATABASE), ...filesOf(LOCK)],
  ...["transcripts", "pipes", "workspaces", "shared"],
]);
const FILE_MODE = 0o600;

/** The data directory as others are to be kept out of it. */
export function privateDataDir(directory: string): PrivateDirectory {
  return { path: directory, option: "data-dir", isOwn: (name) => ENTRIES.has(name) };
}

/** A data directory that is this service's alone while it is held. */
export class DataDir {
  readonly path: string;
  readonly #lock: DatabaseSync;

  private constructor(directory: string, lock: DatabaseSync) {
    this.path = directory;
    this.#lock = lock;
  }

  /**
   * Takes the directory, which is made where it is missing and closed to other
   * users. The lock ends with the process, however that ends.
   * @throws `INVALID_ARGUMENT` where it cannot be written or closed, or another service holds it, saying what to do.
   */
  static hold(directory: string): DataDir {
    try {
      makePrivate(privateDataDir(directory));
      makeFilePrivate(path.join(directory, LOCK));
    } catch (error) {
      throw error instanceof BerthError ? error : unusable(directory, error);
    }
    return new DataDir(directory, lockFile(directory));
  }

  /** Where the database is. */
  get database(): string {
    return path.join(this.path, DATABASE);
  }

  /** Makes the database's files readable to nobody but this user. To be called before it is opened. */
  makeDatabasePrivate(): void {
    try {
      makeFilePrivate(this.database);
    } catch (error) {
      throw unusable(this.path, error);
    }
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
    lock = new DatabaseSync(path.join(directory, LOCK), { timeout: 0 });
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

/**
 * Makes an empty file where there is none; SQLite's own would be open to
 * readers. One that is there is not opened: closing it would end the locks that
 * this process has on it.
 */
function makeFilePrivate(file: string): void {
  try {
    closeSync(openSync(file, "ax", FILE_MODE));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  for (const place of filesOf(file)) {
    const mode = statSync(place, { throwIfNoEntry: false })?.mode ?? 0;
    if ((mode & 0o077) !== 0) chmodSync(place, FILE_MODE);
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
