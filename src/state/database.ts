import { DatabaseSync, type StatementSync } from "node:sqlite";
import { BerthError } from "../base/errors.ts";
import { Seal } from "./seal.ts";

/** How long a statement waits for another connection's lock. */
const BUSY_TIMEOUT_MS = 5_000;

/**
 * One connection to a SQLite file, for short synchronous work: in WAL mode a
 * small write takes tens of microseconds and does not wait for the disk. What
 * was committed survives the process, however it ends; the newest commits may
 * be lost with the machine's power.
 */
export class Database {
  /** Seals what stores must not hold in clear. */
  readonly seal: Seal;
  readonly #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;

  private constructor(sqlite: DatabaseSync, seal: Seal) {
    this.#sqlite = sqlite;
    this.seal = seal;
  }

  /** Opens the file, which is made where it is missing. @param seal default: one for this connection alone */
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

  /** A statement, prepared once for each text. */
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
   * Runs `work`, which is synchronous, all or nothing. A transaction inside
   * another is part of it.
   * @throws `NO_SPACE` where the disk is full; nothing has changed then.
   */
  transaction<T>(work: () => T): T {
    if (this.#depth > 0) return work();
    this.#depth++;
    try {
      this.#sqlite.exec("BEGIN IMMEDIATE");
      const result = work();
      this.#sqlite.exec("COMMIT");
      return result;
    } catch (error) {
      // After some failures SQLite has rolled back already.
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw translateError(error);
    } finally {
      this.#depth--;
    }
  }

  /** As {@link transaction}, but waits for the disk: what was committed survives a loss of power too. */
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

/** Makes several writes one: all are stored, or none. Passes on what `work` throws. */
export type Transaction = <T>(work: () => T) => T;

/** Result codes of SQLite; the lower byte of an extended one is its primary. */
const CODE = { busy: 5, ioError: 10, corrupt: 11, full: 13, cannotOpen: 14, readOnly: 8, notADatabase: 26 };

/** The primary result code of an error that SQLite raised, else undefined. */
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

/** Whether a file is not a database, or a broken one. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === CODE.corrupt || code === CODE.notADatabase;
}

/** Turns an error of SQLite into a `BerthError` for the caller whose change could not be stored. Other errors stay. */
function translateError(error: unknown): unknown {
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
