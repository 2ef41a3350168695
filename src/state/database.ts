import { DatabaseSync, type StatementSync } from "node:sqlite";
import { translateError } from "./errors.ts";

/** How long a statement waits for another connection's lock. */
const BUSY_TIMEOUT_MS = 5_000;

/**
 * One connection to a SQLite file, made for short synchronous work: in WAL mode
 * a small write takes tens of microseconds and waits for no disk. What was
 * committed survives the end of the process, however it ends; the newest
 * commits may be lost with the machine's power.
 */
export class Database {
  readonly #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;

  private constructor(sqlite: DatabaseSync) {
    this.#sqlite = sqlite;
  }

  /** Opens the file, which is made where it is missing. */
  static open(file: string): Database {
    const sqlite = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
    try {
      sqlite.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;");
      return new Database(sqlite);
    } catch (error) {
      sqlite.close();
      throw error;
    }
  }

  /** A statement, made once for each text. */
  prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.#sqlite.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  /** Runs statements that give no rows. */
  exec(sql: string): void {
    this.#sqlite.exec(sql);
  }

  /**
   * Runs `work`, which is synchronous, all or nothing. A transaction inside
   * another is part of it.
   * @throws `NO_SPACE` where the disk takes no more; nothing is changed then.
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
      // Some failures have rolled back already.
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw translateError(error);
    } finally {
      this.#depth--;
    }
  }

  /** As {@link transaction}, and it waits for the disk: what was committed survives a loss of power too. */
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

/** Makes several writes one: all are kept, or none. What `work` throws comes out. */
export type Transaction = <T>(work: () => T) => T;
