import { type FileHandle, mkdir, open, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { BerthError } from "../core/errors.ts";
import { randomBase32 } from "../core/ids.ts";

/** Bytes in one file; a file goes as a whole when nothing in it is needed any more. */
const SEGMENT_BYTES = 8 * 1024 * 1024;

/** Bytes that were put on disk. */
export interface StoredBytes {
  /** Reads from place `from` to `to`, counted within these bytes. */
  read(from: number, to: number): Promise<Buffer>;
  /** Says that they are not needed any more. */
  drop(): void;
}

/** A place on disk for output that memory is not to hold. One for each transcript. */
export interface Spill {
  /** Appends pieces, all or none of them. One write at a time. Rejects where the disk takes no more. */
  write(pieces: readonly Uint8Array[]): Promise<StoredBytes[]>;
  /** Gives back what only writing needs. */
  seal(): Promise<void>;
}

/** The directory that transcripts spill to: of this process alone, and emptied of what ended ones left. */
export class SpillDirectory {
  readonly #path: string;

  private constructor(directory: string) {
    this.#path = directory;
  }

  /**
   * Makes it below `parent`, which is made where it is missing.
   * @throws `NO_SPACE` or `NOT_ALLOWED` where that cannot be, saying what to change.
   */
  static async create(parent: string): Promise<SpillDirectory> {
    try {
      return await SpillDirectory.#make(parent);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
      throw new BerthError(
        code === "ENOSPC" ? "NO_SPACE" : "NOT_ALLOWED",
        `The directory ${parent} cannot be used (${code}). Make it writable, or name another with --data-dir.`,
        { cause: error },
      );
    }
  }

  static async #make(parent: string): Promise<SpillDirectory> {
    await mkdir(parent, { recursive: true, mode: 0o700 });
    for (const name of await readdir(parent)) {
      const pid = Number(/^(\d+)-/.exec(name)?.[1]);
      if (pid > 0 && !isAlive(pid)) await rm(path.join(parent, name), { recursive: true, force: true });
    }
    const own = path.join(parent, `${process.pid}-${randomBase32(8)}`);
    await mkdir(own, { mode: 0o700 });
    return new SpillDirectory(own);
  }

  /** A place for one transcript; nothing is made before it is written to. */
  open(): Spill {
    return new SegmentedFile(path.join(this.#path, randomBase32(16)));
  }

  async remove(): Promise<void> {
    await rm(this.#path, { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** A file in pieces, so that its beginning can go while its end is written. */
class SegmentedFile implements Spill {
  readonly #prefix: string;
  #segment: Segment | undefined;
  #count = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  async write(pieces: readonly Uint8Array[]): Promise<StoredBytes[]> {
    if (this.#segment !== undefined && this.#segment.size >= SEGMENT_BYTES) await this.seal();
    this.#segment ??= await Segment.create(`${this.#prefix}.${this.#count++}`);
    return this.#segment.append(pieces);
  }

  async seal(): Promise<void> {
    const segment = this.#segment;
    this.#segment = undefined;
    await segment?.seal();
  }
}

/** One file of a {@link SegmentedFile}. It is removed with the last of its pieces. */
class Segment {
  readonly #path: string;
  /** Open while it is written to; closing it waits for reads. Later reads open the file for themselves: ended transcripts hold no descriptor. */
  #handle: FileHandle | undefined;
  size = 0;
  #pieces = 0;
  #readers = 0;

  private constructor(file: string, handle: FileHandle) {
    this.#path = file;
    this.#handle = handle;
  }

  static async create(file: string): Promise<Segment> {
    return new Segment(file, await open(file, "wx+", 0o600));
  }

  async append(pieces: readonly Uint8Array[]): Promise<StoredBytes[]> {
    const handle = this.#handle;
    if (handle === undefined) throw new Error("the segment is sealed");
    const total = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const { bytesWritten } = await handle.writev(pieces, this.size);
    if (bytesWritten < total) throw Object.assign(new Error("the disk took a part only"), { code: "ENOSPC" });
    this.#pieces += pieces.length;
    return pieces.map((piece) => {
      const start = this.size;
      this.size += piece.length;
      return this.#stored(start);
    });
  }

  #stored(start: number): StoredBytes {
    let dropped = false;
    return {
      read: (from, to) => this.#read(start + from, to - from),
      drop: () => {
        if (dropped) return;
        dropped = true;
        this.#pieces--;
        this.#removeIfUnused();
      },
    };
  }

  async seal(): Promise<void> {
    const handle = this.#handle;
    this.#handle = undefined;
    await handle?.close();
    this.#removeIfUnused();
  }

  async #read(position: number, length: number): Promise<Buffer> {
    this.#readers++;
    try {
      return await this.#readHeld(position, length);
    } finally {
      this.#readers--;
      this.#removeIfUnused();
    }
  }

  async #readHeld(position: number, length: number): Promise<Buffer> {
    const shared = this.#handle;
    const handle = shared ?? (await open(this.#path, "r"));
    try {
      const buffer = Buffer.allocUnsafeSlow(length);
      for (let done = 0; done < length; ) {
        const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
        if (bytesRead === 0) throw new Error("a spilled transcript is shorter than what was written");
        done += bytesRead;
      }
      return buffer;
    } finally {
      if (handle !== shared) await handle.close();
    }
  }

  #removeIfUnused(): void {
    if (this.#handle !== undefined || this.#pieces > 0 || this.#readers > 0) return;
    rm(this.#path, { force: true }).catch(() => {
      // The directory goes with the service; a file that stays till then costs its room.
    });
  }
}
