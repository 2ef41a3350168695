import { constants, type Stats } from "node:fs";
import { chmod, type FileHandle, lstat, open, readdir, rename } from "node:fs/promises";
import { type ByteString, fromBytes, toBytes } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import { codeOf } from "../../base/system-errors.ts";

/** Linux's flag to open a place in the tree without access to its content. Node has no name for it. */
const O_PATH = 0o10000000;
const FLAGS = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** How many levels a walk goes down. It holds the directories above it open, and all owners share the descriptors. */
const MAX_DEPTH = 100;

/**
 * A directory that is held open. Names are looked up in it, whatever happens to the path that led to it. It follows no
 * link, so nobody who can write in a tree can lead a walk out of it.
 */
export class PinnedDirectory implements AsyncDisposable {
  readonly #handle: FileHandle;
  readonly #depth: number;

  private constructor(handle: FileHandle, depth = 0) {
    this.#handle = handle;
    this.#depth = depth;
  }

  /** @throws `ENOENT`; `ENOTDIR` or `ELOOP` if something else is there. */
  static async open(path: string): Promise<PinnedDirectory> {
    return new PinnedDirectory(await open(path, FLAGS));
  }

  /** A path to it, valid while it is open, for this process and its children. */
  get path(): string {
    return `/proc/self/fd/${this.#handle.fd}`;
  }

  /** For children that inherit it, while it is open. */
  get fd(): number {
    return this.#handle.fd;
  }

  /** Opens a directory in it. @throws like {@link open}; `UNSUPPORTED` beyond {@link MAX_DEPTH}. */
  async child(name: ByteString): Promise<PinnedDirectory> {
    if (this.#depth === MAX_DEPTH) throw tooDeep();
    return new PinnedDirectory(await open(this.#place(name), FLAGS), this.#depth + 1);
  }

  async names(): Promise<ByteString[]> {
    return (await readdir(this.path, { encoding: "buffer" })).map(fromBytes);
  }

  /** The entry with this name. Undefined: there is none. */
  async stat(name: ByteString): Promise<Stats | undefined> {
    try {
      return await lstat(this.#place(name));
    } catch (error) {
      if (codeOf(error) === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Moves the entry with this name into another directory. */
  async moveTo(name: ByteString, target: PinnedDirectory): Promise<void> {
    await rename(this.#place(name), target.#place(name));
  }

  /** Sets the mode of the directory itself. */
  async setMode(mode: number): Promise<void> {
    await chmod(this.path, mode);
  }

  /** Lets the owner write to the directory itself: otherwise an ordinary user could not move it. */
  async openToOwner(): Promise<void> {
    const { mode } = await this.#handle.stat();
    if (process.getuid?.() !== 0) await this.setMode((mode & 0o7777) | 0o700);
  }

  /** Closes it in the background. */
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

function tooDeep(): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `The archive has directories in more than ${MAX_DEPTH} levels of directories that the workspace has too. Import it into a new workspace, or with replace.`,
    { metadata: { limit: String(MAX_DEPTH) } },
  );
}

/** Identifies a directory among all that exist at that moment. Undefined: there is none. */
export async function identityOf(directory: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await lstat(directory, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
