import { Worker } from "node:worker_threads";
import type { Database } from "./database.ts";

/** How often the log is looked at, while there are commits. */
const INTERVAL_MS = 1_000;
/** From how many pages on the log is copied: 16 MiB. */
const LONG_LOG_PAGES = 4_000;

/** The source, or the file next to the built program. */
const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./checkpoint-worker.ts" : "./checkpoint-worker.js",
  import.meta.url,
);

/**
 * Copies the write-ahead log of a database into its file when it has become long, in a worker thread. SQLite does that
 * inside a commit, and waits for the disk twice: 10 ms, or hundreds while somebody else writes much. If the thread
 * cannot start or is too slow, a commit still does it, later ({@link Database.onCommit}).
 */
export class Checkpoints {
  readonly #database: Database;
  readonly #file: string;
  readonly #longLogPages: number;
  #timer: NodeJS.Timeout | undefined;
  #worker: Worker | undefined;

  /** @param longLogPages from how many pages on the log is copied */
  constructor(database: Database, file: string, longLogPages = LONG_LOG_PAGES) {
    this.#database = database;
    this.#file = file;
    this.#longLogPages = longLogPages;
    database.onCommit(() => {
      this.#timer ??= setTimeout(() => this.#look(), INTERVAL_MS).unref();
    });
  }

  /** Call it before the database is closed. A started copy still ends. */
  stop(): void {
    this.#database.onCommit(undefined);
    clearTimeout(this.#timer);
    void this.#worker?.terminate();
    this.#worker = undefined;
  }

  #look(): void {
    this.#timer = undefined;
    try {
      const { pages, copied } = this.#database.log();
      if (pages < this.#longLogPages || copied === pages) return;
      this.#worker ??= this.#start();
      this.#worker.postMessage("copy");
    } catch {
      // Too many threads, or a damaged disk, which the next write reports.
    }
  }

  #start(): Worker {
    const worker = new Worker(WORKER, { workerData: this.#file, execArgv: [], env: {} });
    worker.unref();
    // If it cannot open the file, or whenever it has been idle for some time. The next look starts another.
    worker.once("exit", () => {
      if (this.#worker === worker) this.#worker = undefined;
    });
    worker.on("error", () => {});
    return worker;
  }
}
