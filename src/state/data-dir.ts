import { once } from "node:events";
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readSync,
  statSync,
} from "node:fs";
import net from "node:net";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { COMPILE_CACHE } from "../base/compile-cache.ts";
import type { Finding } from "../base/diagnosis.ts";
import { BerthError, hasReason } from "../base/errors.ts";
import { makePrivate, type PrivateDirectory } from "../base/private-directory.ts";
import { isBusy, isCorrupt, isFull, isIoError, translateError } from "./database.ts";
import { APPLICATION_ID, MIGRATIONS } from "./schema.ts";
import { hasKey, NEW_KEY_END, SEALED_PREFIX, Seal } from "./seal.ts";

const DATABASE = "berth.db";
const LOCK = "lock";
const KEY = "key";
/** A database file, and the files that SQLite creates next to it with the same mode. */
const filesOf = (file: string) => ["", "-journal", "-wal", "-shm"].map((end) => file + end);
/** What the service creates in its data directory. */
const ENTRIES = new Set([
  ...[...filesOf(DATABASE), ...filesOf(LOCK)],
  ...[KEY, KEY + NEW_KEY_END],
  ...["holder", "transcripts", "pipes", "workspaces", "shared", COMPILE_CACHE],
]);
const FILE_MODE = 0o600;

/** The database of a data directory. */
export function databaseIn(directory: string): string {
  return path.join(directory, DATABASE);
}

/** The data directory, as a directory that other users must not enter. */
export function privateDataDir(directory: string): PrivateDirectory {
  return { path: directory, option: "data-dir", isOwn: (name) => ENTRIES.has(name) };
}

/** A data directory, locked for this service. */
export class DataDir {
  readonly path: string;
  readonly #lock: DatabaseSync;

  private constructor(directory: string, lock: DatabaseSync) {
    this.path = directory;
    this.#lock = lock;
  }

  /**
   * Locks the directory. Creates it if it is missing, and closes it to other users. The lock is released when the
   * process ends, even by a crash.
   * @throws `INVALID_ARGUMENT`, with what to do, if it is not writable, cannot be closed to others, or is locked by
   * another service.
   */
  static hold(directory: string): DataDir {
    try {
      makePrivate(privateDataDir(directory));
      // SQLite would open what is there on a read-only disk, and fail later on.
      accessSync(directory, constants.W_OK | constants.X_OK);
      makeFilePrivate(path.join(directory, LOCK));
    } catch (error) {
      throw error instanceof BerthError ? error : unusable(directory, error);
    }
    return new DataDir(directory, lockFile(directory));
  }

  get database(): string {
    return databaseIn(this.path);
  }

  /** The seal for the database's contents. Creates its key if it is missing. Call it after inspecting the database. */
  seal(): Seal {
    const key = path.join(this.path, KEY);
    try {
      // A new key would open nothing, and hide that the old one is missing.
      if (!hasKey(key) && isSealed(this.database)) throw missingKey(key);
      return Seal.ofFile(key);
    } catch (error) {
      throw error instanceof BerthError ? error : unusable(this.path, error);
    }
  }

  /** Makes the database's files readable only to this user. Call it before opening the database. */
  makeDatabasePrivate(): void {
    try {
      makeFilePrivate(this.database);
    } catch (error) {
      throw unusable(this.path, error);
    }
  }

  /** What to throw where the service could not open it: an error of the disk in words for who starts the service. */
  explain(error: unknown): unknown {
    const translated = translateError(error);
    return hasReason(translated, "NO_SPACE") ? unusable(this.path, translated.cause) : error;
  }

  release(): void {
    this.#lock.close();
  }
}

/** Locks a file with an exclusive transaction on an empty SQLite database, because Node has no file locks. */
function lockFile(directory: string): DatabaseSync {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(path.join(directory, LOCK), { timeout: 0 });
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock?.close();
    if (!isBusy(error)) throw unusable(directory, error);
    const { found, fix } = inUse(directory);
    throw refused(`${found}. ${fix}`, error);
  }
}

/**
 * Keeps a second service on this machine from running as the same instance, as one on a copy of the data directory
 * does: each would remove the containers that the other one created. The name of an abstract socket is held until the
 * process ends, however it ends. Nothing is sent over it. Any user of the machine may hold the name first, and then no
 * service starts: one that does not know whether another runs must not remove its containers.
 * @returns how to release it.
 * @throws `INVALID_ARGUMENT` where another service holds it, saying what to do.
 */
export async function holdInstance(instance: string): Promise<() => void> {
  const server = net.createServer((caller) => caller.destroy());
  server.unref();
  try {
    const listening = once(server, "listening");
    server.listen(`\0berth/${instance}`);
    await listening;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    throw refused(
      `another service on this machine runs as the same instance, ${instance}, probably from a copy of this directory. Each would remove the other's sandboxes. Stop that one first: ss -xlp | grep ${instance}`,
      error,
    );
  }
  // Anyone on this machine may call. A call for which there is no free descriptor must not end the process.
  server.on("error", () => {});
  return () => server.close();
}

/**
 * Creates an empty file if there is none, because SQLite would create one that others can read. Does not open an
 * existing file, because closing it would release this process's locks on it.
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

/** The error for a directory that is not writable. */
function unusable(directory: string, cause: unknown): BerthError {
  const error = cause as NodeJS.ErrnoException & { readonly errstr?: string };
  const { code, message, errstr } = error;
  const problem = whatIsInTheWay(error) ?? errstr ?? message ?? "unknown error";
  const todo =
    code === "ENOSPC" || code === "EDQUOT" || isFull(cause)
      ? "Free space on its disk"
      : isIoError(cause)
        ? "Check its disk, and free space on it"
        : "Make it a directory to which this user may write";
  return new BerthError(
    "INVALID_ARGUMENT",
    `--data-dir: ${directory} cannot be used (${problem}). ${todo}, or name another with --data-dir.`,
    { cause, metadata: { field: "data-dir" } },
  );
}

/** What has the name of a directory that could not be created. */
function whatIsInTheWay({ code, path: place }: NodeJS.ErrnoException): string | undefined {
  if (code !== "EEXIST" || place === undefined) return undefined;
  return existsSync(place)
    ? `${place} is not a directory`
    : `${place} is a link to a place that does not exist`;
}

const HEADER_BYTES = 100;
const MAGIC = "SQLite format 3\0";
/** Offsets in the file's header, whose numbers are big-endian. */
const AT = { userVersion: 60, applicationId: 68 };

/**
 * Checks a database before it is used.
 * @throws `INVALID_ARGUMENT` if it is corrupt, or of another program or a newer version. The file is unchanged then.
 */
export function inspectFile(file: string): void {
  if (!existsSync(file) || statSync(file).size === 0) return;
  inspectHeader(file);
  checkPages(file);
}

/**
 * Whether this version could use the database of a data directory, as far as its first bytes show. Opens no connection,
 * which would create files, perhaps as another user than the service's.
 */
export function diagnoseDatabase(directory: string): Finding[] {
  try {
    const file = databaseIn(directory);
    if (!existsSync(file) || statSync(file).size === 0) return [];
    inspectHeader(file);
    // The service makes the key before it writes to the database. Whether anything is sealed, only a connection would show.
    const key = path.join(directory, KEY);
    if (!hasKey(key)) throw missingKey(key);
    Seal.ofFile(key);
    return [];
  } catch (error) {
    // That this user may not read it is no finding: the service may be another user.
    if (!(error instanceof BerthError)) return [];
    const fix = "Run the version that wrote it, restore a backup, or name another directory with --data-dir";
    return [{ subject: "database", status: "missing", found: error.message, fix }];
  }
}

/**
 * Whether another service holds the data directory. Reads the lock, and so holds it against a start for some
 * microseconds.
 */
export function diagnoseLock(directory: string): Finding[] {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(path.join(directory, LOCK), { readOnly: true, timeout: 0 });
    lock.prepare("PRAGMA schema_version").get();
    return [];
  } catch (error) {
    // That it is missing, or that this user may not read it, is no finding.
    if (!isBusy(error)) return [];
    return [{ subject: "--data-dir", status: "missing", ...inUse(directory) }];
  } finally {
    lock?.close();
  }
}

function inUse(directory: string) {
  const found = `${directory} is in use by another service`;
  return { found, fix: "Stop that one, or give this one a directory of its own." };
}

function missingKey(key: string): BerthError {
  return refused(
    `${key} is missing, and the database cannot be read without it. Restore both from the same backup.`,
  );
}

/** Checks the first bytes of a database, and opens no connection. @throws like {@link inspectFile} */
function inspectHeader(file: string): void {
  const header = readHeader(file);
  if (header.length < HEADER_BYTES || header.toString("latin1", 0, MAGIC.length) !== MAGIC) {
    throw refused(`${file} is not a database, or a broken one.`);
  }
  const applicationId = header.readUInt32BE(AT.applicationId);
  // 0: the service ended before it had finished the first migration.
  if (applicationId !== APPLICATION_ID && applicationId !== 0) {
    throw refused(`${file} is the database of another program.`);
  }
  assertKnownVersion(file, header.readUInt32BE(AT.userVersion));
}

function assertKnownVersion(file: string, version: number): void {
  if (version <= MIGRATIONS.length) return;
  throw refused(
    `${file} was written by a newer version of Berth (schema ${version}; this one knows ${MIGRATIONS.length}). Run that version, or one after it.`,
  );
}

function readHeader(file: string): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(file, "r");
  try {
    return header.subarray(0, readSync(descriptor, header, 0, HEADER_BYTES, 0));
  } finally {
    closeSync(descriptor);
  }
}

/** Reads every page, and the version. The connection is read-only, so it repairs nothing and preserves the evidence. */
function checkPages(file: string): void {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { readOnly: true });
    const [first] = database.prepare("PRAGMA quick_check(1)").all();
    if (first?.quick_check !== "ok") throw broken(file, new Error(String(first?.quick_check)));
    // A newer version that was killed may have left its version in the write-ahead log, and not yet in the header.
    assertKnownVersion(file, Number(database.prepare("PRAGMA user_version").get()?.user_version));
  } catch (error) {
    if (isCorrupt(error)) throw broken(file, error);
    throw error instanceof BerthError ? error : unusable(file, error);
  } finally {
    database?.close();
  }
}

/** Where sealed texts are: the column of each table. */
const SEALED = {
  sandboxes: "spec",
  processes: "facts",
  sessions: "session",
  runs: "record",
  requests: "fingerprint",
};

/** Whether a database holds what a key sealed. */
function isSealed(file: string): boolean {
  if (!existsSync(file) || statSync(file).size === 0) return false;
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    return Object.entries(SEALED).some(([table, column]) => {
      const isThere = database.prepare("SELECT 1 FROM sqlite_master WHERE name = ?").get(table);
      const found = `SELECT 1 FROM ${table} WHERE ${column} GLOB ?`;
      return isThere !== undefined && database.prepare(found).get(`${SEALED_PREFIX}*`) !== undefined;
    });
  } finally {
    database.close();
  }
}

function broken(file: string, cause: unknown): BerthError {
  return refused(
    `${file} is damaged. Restore it from a backup, or move it away to start empty; with the --instance it had, leftover sandboxes are then removed.`,
    cause,
  );
}

function refused(message: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", `--data-dir: ${message}`, {
    cause,
    metadata: { field: "data-dir" },
  });
}
