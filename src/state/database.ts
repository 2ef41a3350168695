import { DatabaseSync, type StatementSync } from "node:sqlite";
import { BerthError } from "../base/errors.ts";
import { Seal } from "./seal.ts";

/** How long a statement waits for another connection's lock. */
const BUSY_TIMEOUT_MS = 5_000;

/** From how many pages on a commit copies the log into the file, unless somebody else has: 64 MiB. */
const MAX_LOG_PAGES = 16_000;

/** How many pages the write-ahead log has, and how many of them are in the file already. */
interface LogSize {
  readonly pages: number;
  readonly copied: number;
}

/**
 * One connection to a SQLite file, for short synchronous work. In WAL mode a small write takes tens of microseconds and
 * does not wait for the disk. Commits survive a crash of the process. The newest ones may be lost if the machine loses
 * power.
 */
export class Database {
  /** Encrypts what must not be stored in plain text. */
  readonly seal: Seal;
  readonly #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;
  #onCommit: (() => void) | undefined;

  private constructor(sqlite: DatabaseSync, seal: Seal) {
    this.#sqlite = sqlite;
    this.seal = seal;
  }

  /** Opens the file, creating it if it is missing. @param seal default: one for this connection only */
  static open(file: string, seal: Seal = Seal.random()): Database {
    const sqlite = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
    try {
      sqlite.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;");
      return new Database(sqlite, seal);
    } catch (error) {
      sqlite.close();
      throw error;
    }
  }

  /** Prepares a statement. Each text is prepared only once. */
  prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.#sqlite.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  /** Runs statements that return no rows. */
  exec(sql: string): void {
    this.#sqlite.exec(sql);
  }

  /**
   * Has `onCommit` called after each transaction. It has to see to it that the log is copied into the file, which
   * otherwise a commit does at 1,000 pages: now only at {@link MAX_LOG_PAGES}.
   */
  onCommit(onCommit: (() => void) | undefined): void {
    if (onCommit !== undefined) this.#sqlite.exec(`PRAGMA wal_autocheckpoint = ${MAX_LOG_PAGES}`);
    this.#onCommit = onCommit;
  }

  /** Takes microseconds. */
  log(): LogSize {
    const { log, checkpointed } = this.prepare("PRAGMA wal_checkpoint(NOOP)").get() ?? {};
    return { pages: Number(log), copied: Number(checkpointed) };
  }

  /**
   * Runs `work`, which must be synchronous, in a transaction. A nested transaction is part of the outer one.
   * @throws `NO_SPACE` if the disk is full. Nothing has changed then.
   */
  transaction<T>(work: () => T): T {
    if (this.#depth > 0) return work();
    this.#depth++;
    try {
      this.#sqlite.exec("BEGIN IMMEDIATE");
      const result = work();
      this.#sqlite.exec("COMMIT");
      this.#onCommit?.();
      return result;
    } catch (error) {
      // After some failures SQLite has already rolled back.
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw translateError(error);
    } finally {
      this.#depth--;
    }
  }

  /** Like {@link transaction}, but waits for the disk, so that the commit also survives a power loss. */
  durably<T>(work: () => T): T {
    if (this.#depth > 0) return work();
    this.#sqlite.exec("PRAGMA synchronous = FULL");
    try {
      return this.transaction(work);
    } finally {
      this.#sqlite.exec("PRAGMA synchronous = NORMAL");
    }
  }

  close(): void {
    this.#statements.clear();
    this.#sqlite.close();
  }
}

/** Runs several writes as one: all are stored, or none. Rethrows what `work` throws. */
export type Transaction = <T>(work: () => T) => T;

/** Primary result codes of SQLite: the lower byte of an extended result code. */
const CODE = { busy: 5, ioError: 10, corrupt: 11, full: 13, cannotOpen: 14, readOnly: 8, notADatabase: 26 };

/** The primary result code of an error of SQLite; undefined for other errors. */
function sqliteCode(error: unknown): number | undefined {
  const code = (error as { readonly errcode?: unknown } | null)?.errcode;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** Whether another connection holds the lock. */
export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === CODE.busy;
}

/** Whether the disk is full. */
export function isFull(error: unknown): boolean {
  return sqliteCode(error) === CODE.full;
}

/** Whether the disk failed, or was too full for a file that is mapped into memory. */
export function isIoError(error: unknown): boolean {
  return sqliteCode(error) === CODE.ioError;
}

/** Whether a file is not a database, or a corrupt one. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === CODE.corrupt || code === CODE.notADatabase;
}

/**
 * Converts an error of SQLite to a `BerthError` for the caller whose change could not be stored. Returns other errors
 * as they are.
 */
export function translateError(error: unknown): unknown {
  switch (sqliteCode(error)) {
    case undefined:
      return error;
    case CODE.full:
      return new BerthError(
        "NO_SPACE",
        "The disk of the server's data directory is full. Nothing was changed. Ask the operator to free space there.",
        { cause: error },
      );
    case CODE.ioError:
    case CODE.readOnly:
    case CODE.cannotOpen:
      return new BerthError(
        "NO_SPACE",
        "The server's data directory cannot be written. Nothing was changed. Ask the operator to check its disk.",
        { cause: error },
      );
    default:
      return new BerthError("INTERNAL", "The server's database failed; the server's log has the details.", {
        cause: error,
      });
  }
}
