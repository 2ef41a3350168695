import { constants, type Stats } from "node:fs";
import { access, type FileHandle, lstat, open, rename, stat } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "./errors.ts";
import { quoteIfNeeded } from "./shell-quote.ts";

/** Options of a {@link RotatedFile}. */
export interface RotatedFileOptions {
  /** The option that names the file, without dashes. */
  readonly option: string;
  /** The file is rotated before it exceeds this size in bytes. */
  readonly maxBytes: number;
  /** Total number of files, including the current one; at least 1. */
  readonly maxFiles: number;
  /** Limit of lines that wait to be written, in bytes. Lines beyond it are lost. */
  readonly maxWaitingBytes: number;
  /** Returns the line to write in place of lost lines. */
  readonly gapLine: (lost: number) => string;
  /** Called when writing starts to fail, and with undefined when it works again. */
  readonly onProblem: (problem: unknown) => void;
}

const APPEND = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT;
/**
 * Do not follow a symbolic link, with which others could choose the file, and do not block on a FIFO without a reader.
 */
const CAREFULLY = constants.O_NOFOLLOW | constants.O_NONBLOCK;
const OTHERS = 0o077;
const GROUP_WRITE = 0o020;
const OTHERS_WRITE = 0o002;
const STICKY = 0o1000;

/** How long lines are collected, in milliseconds, and how many bytes one write takes. */
const GATHER_MS = 50;
const MAX_WRITE_BYTES = 256 * 1024;
/** Pause between attempts while writing fails, in milliseconds. */
const RETRY_MS = 500;

/**
 * Lines in a file that only this user can read, and in its predecessors `FILE.1`, `FILE.2`, … Lines are written in the
 * background, in order; callers never wait. When the disk is full, lines wait up to a limit. Lines beyond it are lost
 * and counted, and a line in their place says so. If another program moves the file away, a new one is created.
 */
export class RotatedFile {
  readonly #path: string;
  readonly #options: RotatedFileOptions;
  #file: FileHandle;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  /** Lines lost since the last line that could be added. */
  #gap = 0;
  #lost = 0;
  #failing = false;
  #closing = new AbortController();
  #writing: Promise<void> | undefined;

  private constructor(path: string, options: RotatedFileOptions, file: FileHandle) {
    this.#path = path;
    this.#options = options;
    this.#file = file;
  }

  /** @throws `INVALID_ARGUMENT`, with what to do, if the file cannot be used. */
  static async open(path: string, options: RotatedFileOptions): Promise<RotatedFile> {
    const file = await openPrivate(path, options.option);
    return new RotatedFile(path, options, file);
  }

  /** Number of lines lost since the start. */
  get lost(): number {
    return this.#lost;
  }

  /** Whether there are waiting lines that could not be written. */
  get isFailing(): boolean {
    return this.#failing;
  }

  /** Adds a line, given without its newline. */
  append(line: string): void {
    const gap = this.#gap === 0 ? "" : `${this.#options.gapLine(this.#gap)}\n`;
    const bytes = Buffer.from(`${gap}${line}\n`);
    const isFull = this.#waitingBytes + bytes.length > this.#options.maxWaitingBytes;
    if (this.#closing.signal.aborted || isFull) {
      this.#lost++;
      this.#gap++;
      return;
    }
    this.#gap = 0;
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
    });
  }

  /** Writes waiting lines, without a retry if that fails, and accepts no more. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#writing;
    await this.#file.close();
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      await this.#pause(GATHER_MS);
      const isLast = this.#closing.signal.aborted;
      try {
        await this.#writeSome();
        this.#report(undefined);
      } catch (error) {
        this.#report(error);
        if (isLast) return this.#giveUp();
        await this.#pause(RETRY_MS);
      }
    }
  }

  /**
   * Writes the lines that fit into one write. If a write fails, no part of a line remains in the file, and the line
   * stays first in the queue.
   */
  async #writeSome(): Promise<void> {
    let count = 0;
    let length = 0;
    for (const line of this.#waiting) {
      if (count > 0 && length + line.length > MAX_WRITE_BYTES) break;
      length += line.length;
      count++;
    }
    const size = await this.#makeRoom(length);
    const bytes = Buffer.concat(this.#waiting.slice(0, count), length);
    try {
      for (let done = 0; done < length; ) {
        done += (await this.#file.write(bytes, done, length - done)).bytesWritten;
      }
    } catch (error) {
      await this.#file.truncate(size).catch(() => {});
      throw error;
    }
    this.#waiting.splice(0, count);
    this.#waitingBytes -= length;
  }

  /** Reopens the file if another program has moved it, and rotates it if it is full. Returns its size. */
  async #makeRoom(length: number): Promise<number> {
    const own = await this.#file.stat();
    const there = await stat(this.#path).catch(() => undefined);
    if (there?.ino !== own.ino || there.dev !== own.dev) await this.#reopen();
    else if (own.size + length <= this.#options.maxBytes || own.size === 0) return own.size;
    else {
      await this.#rotate();
      await this.#reopen();
    }
    return (await this.#file.stat()).size;
  }

  async #rotate(): Promise<void> {
    for (let age = this.#options.maxFiles - 1; age >= 1; age--) {
      const from = age === 1 ? this.#path : `${this.#path}.${age - 1}`;
      await rename(from, `${this.#path}.${age}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
      });
    }
    // Without predecessors the file is emptied.
    if (this.#options.maxFiles === 1) await this.#file.truncate(0);
  }

  async #reopen(): Promise<void> {
    const next = await openPrivate(this.#path, this.#options.option);
    const last = this.#file;
    this.#file = next;
    await last.close();
  }

  #giveUp(): void {
    this.#lost += this.#waiting.length;
    this.#waiting = [];
    this.#waitingBytes = 0;
  }

  #report(problem: unknown): void {
    const failing = problem !== undefined;
    if (failing !== this.#failing) this.#options.onProblem(problem);
    this.#failing = failing;
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#closing.signal }).catch(() => {});
  }
}

/**
 * Checks whether this service could write such a file there. Changes nothing.
 * @throws `INVALID_ARGUMENT` with what to do
 */
export async function checkPrivateFile(file: string, option: string): Promise<void> {
  await assertParent(file, option);
  // Not what a link leads to: openPrivate() refuses links.
  const found = await lstat(file).catch(() => undefined);
  if (found?.isSymbolicLink()) throw isLink(file, option);
  if (found) assertPrivate(found, file, option);
}

async function openPrivate(file: string, option: string): Promise<FileHandle> {
  await assertParent(file, option);
  const handle = await open(file, APPEND | CAREFULLY, 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ELOOP") throw isLink(file, option, error);
    throw refused(option, `${file} cannot be written (${error.code})`, { cause: error });
  });
  try {
    assertPrivate(await handle.stat(), file, option);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function isLink(file: string, option: string, cause?: unknown): BerthError {
  return refused(option, `${file} is a symbolic link`, { cause });
}

function assertPrivate(found: Stats, file: string, option: string): void {
  if (!found.isFile()) throw refused(option, `${file} is not a file`);
  const own = process.geteuid?.() ?? found.uid;
  if (found.uid !== own) {
    throw refused(option, `${file} belongs to the user ${found.uid}, and this is user ${own}`, {
      fix: `sudo chown ${own} ${quoteIfNeeded(file)}`,
    });
  }
  if ((found.mode & OTHERS) === 0) return;
  throw refused(option, `${file} is open to other users`, { fix: `chmod 600 ${quoteIfNeeded(file)}` });
}

/**
 * Checks the parent directory: anyone who can write to it can remove the file, and this user has to, because a file that
 * is full is renamed.
 */
async function assertParent(file: string, option: string): Promise<void> {
  const directory = path.dirname(file);
  const quoted = quoteIfNeeded(directory);
  const found = await stat(directory).catch((cause: NodeJS.ErrnoException) => {
    throw refused(option, `the directory ${directory} cannot be used (${cause.code})`, {
      fix: `mkdir -p -m 700 ${quoted}`,
      cause,
    });
  });
  if (!found.isDirectory()) throw refused(option, `${directory} is not a directory`);
  const { uid, mode } = found;
  if (uid !== 0 && uid !== process.geteuid?.()) {
    throw refused(option, `the directory ${directory} belongs to the user ${uid}`);
  }
  // In a sticky directory nobody can move another user's file. A group of root's directory, such as that of /var/log,
  // is trusted.
  const isOpen = (mode & OTHERS_WRITE) !== 0 || ((mode & GROUP_WRITE) !== 0 && uid !== 0);
  if (isOpen && (mode & STICKY) === 0) {
    throw refused(option, `other users may write to the directory ${directory}`, {
      fix: `chmod go-w ${quoted}`,
    });
  }
  await access(directory, constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    throw refused(
      option,
      `this user may not write to the directory ${directory}, where the file is renamed when it is full`,
      { cause },
    );
  });
}

function refused(
  option: string,
  problem: string,
  { fix, cause }: { readonly fix?: string; readonly cause?: unknown } = {},
): BerthError {
  const advice = fix === undefined ? "Name another file." : `Type: ${fix}`;
  const metadata = { field: option, ...(fix !== undefined && { fix }) };
  return new BerthError("INVALID_ARGUMENT", `--${option}: ${problem}. ${advice}`, { cause, metadata });
}
