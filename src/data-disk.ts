import type { Stats } from "node:fs";
import { stat, statfs } from "node:fs/promises";
import type { Logger } from "./base/logger.ts";
import { writeProblem } from "./base/write-problem.ts";

const CHECK_INTERVAL_MS = 5_000;
/** Whether it can be written is checked once per this many checks, because that writes to an idle disk. */
const CHECKS_PER_WRITE = 2;
/** Less free space than this is little, or less than {@link LITTLE_SHARE} of a smaller disk. The same for files. */
const LITTLE_BYTES = 2 ** 30;
const LITTLE_FILES = 1_000;
const LITTLE_SHARE = 0.05;
/** How much more must be free before there is enough again, so that a disk at the bound does not fill the log. */
const ENOUGH = 1.25;

/** The data directory and its file system, as seen every few seconds. */
export class DataDisk {
  readonly #dir: string;
  /** A file in it that the service has open, and its state at the start. */
  readonly #file: string;
  readonly #opened: Stats;
  readonly #logger: Logger;
  #freeBytes = Number.NaN;
  #totalBytes = Number.NaN;
  #isLow = false;
  #isReplaced = false;
  #problem: string | undefined;
  #checks = 0;
  readonly #listeners = new Set<() => void>();
  #checking: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  private constructor(dir: string, file: string, opened: Stats, logger: Logger) {
    this.#dir = dir;
    this.#file = file;
    this.#opened = opened;
    this.#logger = logger;
  }

  /** Looks at it, and keeps doing so until {@link stop}. @param file the path of a file in it that stays open */
  static async watch(dir: string, file: string, logger: Logger): Promise<DataDisk> {
    const disk = new DataDisk(dir, file, await stat(file), logger);
    await disk.#check();
    disk.#timer = setInterval(() => {
      // A disk in the network may take its time to answer.
      if (disk.#checking !== undefined) return disk.#forget();
      disk.#checking = disk.#check().finally(() => {
        disk.#checking = undefined;
      });
    }, CHECK_INTERVAL_MS).unref();
    return disk;
  }

  /** What this user can still write, in bytes. NaN while the disk does not answer. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** NaN while the disk does not answer. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /** Whether it is full or nearly full. */
  get isLow(): boolean {
    return this.#isLow;
  }

  /**
   * Whether the directory was removed, moved or mounted over since the start. The service goes on with the files that
   * it has open, which nobody finds again.
   */
  get isReplaced(): boolean {
    return this.#isReplaced;
  }

  /** The code of the error with which writes fail, such as `EROFS`. Undefined: they do not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Calls `listener` whenever {@link problem} changes. Returns a function to unsubscribe. */
  onProblemChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #forget(): void {
    this.#freeBytes = Number.NaN;
    this.#totalBytes = Number.NaN;
  }

  async #checkPlace(): Promise<void> {
    // No other file gets the number of one that is open.
    const { ino, dev } = this.#opened;
    const there = await stat(this.#file).catch(({ code }: NodeJS.ErrnoException) =>
      // Any other problem says nothing about what is there.
      code === "ENOENT" || code === "ENOTDIR" ? undefined : this.#opened,
    );
    const isReplaced = there?.ino !== ino || there.dev !== dev;
    if (isReplaced && !this.#isReplaced) {
      this.#logger.error(
        { directory: this.#dir },
        "the data directory was removed, moved or mounted over; what the service stores now is lost when it stops: put the directory back, or restart the service",
      );
    }
    this.#isReplaced = isReplaced;
  }

  async #checkWrites(): Promise<void> {
    if (this.#problem === undefined && this.#checks++ % CHECKS_PER_WRITE !== 0) return;
    const problem = await writeProblem(this.#dir);
    if (problem === this.#problem) return;
    this.#problem = problem;
    const fields = { directory: this.#dir, problem };
    if (problem === undefined) this.#logger.info(fields, "the data directory can be written again");
    else
      this.#logger.error(
        fields,
        "the data directory cannot be written, so nothing can be created or changed; check its disk (dmesg)",
      );
    for (const listener of this.#listeners) listener();
  }

  async #check(): Promise<void> {
    await this.#checkPlace();
    await this.#checkWrites();
    // What is wrong with a disk that does not answer is reported by what writes there.
    const found = await statfs(this.#dir).catch(() => undefined);
    if (found === undefined) return this.#forget();
    const { bavail, bsize, blocks, files, ffree } = found;
    this.#freeBytes = bavail * bsize;
    this.#totalBytes = blocks * bsize;
    const factor = this.#isLow ? ENOUGH : 1;
    const isLow =
      this.#freeBytes < factor * Math.min(LITTLE_BYTES, this.#totalBytes * LITTLE_SHARE) ||
      ffree < factor * Math.min(LITTLE_FILES, files * LITTLE_SHARE);
    if (isLow === this.#isLow) return;
    this.#isLow = isLow;
    const fields = { directory: this.#dir, freeBytes: this.#freeBytes, freeFiles: ffree };
    if (isLow)
      this.#logger.warn(
        fields,
        "the disk of the data directory is nearly full; once it is full, changes are refused until there is space",
      );
    else this.#logger.info(fields, "the disk of the data directory has enough space again");
  }
}
