import { constants, type Stats } from "node:fs";
import { chmod, type FileHandle, lstat, open, readdir, rename } from "node:fs/promises";
import { type ByteString, fromBytes, toBytes } from "../../base/byte-string.ts";
import { codeOf } from "../../base/system-errors.ts";

/** Linux's flag to open a place in the tree without access to what it holds; Node does not name it. */
const O_PATH = 0o10000000;
const FLAGS = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * A directory that is held open: names are looked up in it, whatever happens to
 * the path that led to it. It follows no link, so nobody who can write in a tree
 * can make a walk leave it.
 */
export class PinnedDirectory implements AsyncDisposable {
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  /** @throws `ENOENT`; `ENOTDIR` or `ELOOP` where something else is there. */
  static async open(path: string): Promise<PinnedDirectory> {
    return new PinnedDirectory(await open(path, FLAGS));
  }

  /** Its path for this process and for children that it starts, while it is open. */
  get path(): string {
    return `/proc/self/fd/${this.#handle.fd}`;
  }

  /** For children that it is handed to, while it is open. */
  get fd(): number {
    return this.#handle.fd;
  }

  /** A directory in it. @throws as {@link open}. */
  async child(name: ByteString): Promise<PinnedDirectory> {
    return new PinnedDirectory(await open(this.#place(name), FLAGS));
  }

  async names(): Promise<ByteString[]> {
    return (await readdir(this.path, { encoding: "buffer" })).map(fromBytes);
  }

  /** What is there under a name; undefined: nothing. */
  async stat(name: ByteString): Promise<Stats | undefined> {
    try {
      return await lstat(this.#place(name));
    } catch (error) {
      if (codeOf(error) === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Moves what is there under a name into another directory. */
  async moveTo(name: ByteString, target: PinnedDirectory): Promise<void> {
    await rename(this.#place(name), target.#place(name));
  }

  /** Sets the mode of the directory itself. */
  async setMode(mode: number): Promise<void> {
    await chmod(this.path, mode);
  }

  /** Opens the directory itself to its owner, who could not move it otherwise. Root can in any case. */
  async openToOwner(): Promise<void> {
    const { mode } = await this.#handle.stat();
    if (process.getuid?.() !== 0) await this.setMode((mode & 0o7777) | 0o700);
  }

  /** Closes it soon. */
  release(): void {
    this.#handle.close().catch(() => {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }

  #place(name: ByteString): Buffer {
    return Buffer.concat([Buffer.from(`${this.path}/`), toBytes(name)]);
  }
}

/** Names a directory among all that exist just then; undefined: there is none. */
export async function identityOf(directory: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await lstat(directory, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
