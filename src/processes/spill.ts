import { type FileHandle, open, readdir, rm, unlink } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BerthError } from "../base/errors.ts";
import { randomBase32 } from "../base/ids.ts";
import { makeDirectories } from "../base/make-directories.ts";
import { codeOf, isNoSpace } from "../base/system-errors.ts";
import { Turns } from "../base/turns.ts";

/** Size of one file. A file is removed when nothing in it is needed any more. */
const SEGMENT_BYTES = 8 * 1024 * 1024;
/** Pause before a file is opened again if the service may open no more. */
const RETRY_MS = 100;
/** For readers that open a file for each read: there may be thousands, and each would hold a descriptor. */
const opened = new Turns(8);

/** A place of bytes on disk. */
export interface StoredPlace {
  /** The file's name in the directory. */
  readonly file: string;
  readonly position: number;
}

/** Bytes on disk. */
export interface StoredBytes extends StoredPlace {
  /** Reads the bytes from `from` up to `to`, counted within these bytes. */
  read(from: number, to: number): Promise<Buffer>;
  /** Frees the bytes, which are not needed any more. */
  drop(): void;
}

/** Storage on disk for output that memory should not hold. One per transcript. */
export interface Spill {
  /** Appends all pieces or none. Only one write at a time. Rejects if the disk is full. */
  write(pieces: readonly Uint8Array[]): Promise<StoredBytes[]>;
  /** Releases resources that only writing needs. */
  seal(): Promise<void>;
}

/** The directory of transcripts. Only this service uses it, and it outlives the service. */
export class SpillDirectory {
  readonly #path: string;
  /** Files of earlier runs of the service that are still needed. */
  readonly #kept = new Set<string>();

  private constructor(directory: string) {
    this.#path = directory;
  }

  /**
   * Opens the directory, creating it if it is missing.
   * @throws `NO_SPACE` or `NOT_ALLOWED` if that fails, with what to change.
   */
  static async create(directory: string): Promise<SpillDirectory> {
    try {
      makeDirectories(directory, 0o700);
      return new SpillDirectory(directory);
    } catch (error) {
      const code = codeOf(error);
      throw new BerthError(
        isNoSpace(code) ? "NO_SPACE" : "NOT_ALLOWED",
        `The directory ${directory} cannot be used (${code ?? "unknown error"}). ${isNoSpace(code) ? "Make room there" : "Make it writable"}, or name another with --data-dir.`,
        { cause: error },
      );
    }
  }

  /** Returns the storage of one transcript. No file is created before the first write. */
  open(): Spill {
    return new SegmentedFile(this.#path);
  }

  /** Makes {@link sweep} keep a file of an earlier run of the service. */
  keep(file: string): void {
    this.#kept.add(path.basename(file));
  }

  /**
   * Returns a function that finds the bytes of one transcript of an earlier run of the service. Reading them fails if
   * they are gone.
   */
  recovery(): (place: StoredPlace, length: number) => StoredBytes {
    const segments = new Map<string, Segment>();
    return ({ file, position }, length) => {
      const segment = segments.get(file) ?? Segment.recover(this.#pathOf(file));
      segments.set(file, segment);
      return segment.piece(position, length);
    };
  }

  /** Removes files of an earlier run of the service, of which nothing is read any more. */
  remove(files: readonly string[]): void {
    // If that fails, the next start of the service sweeps them.
    for (const file of files) unlink(this.#pathOf(file)).catch(() => {});
  }

  /** Removes every file that was not kept. Call it before anything is written. */
  async sweep(): Promise<void> {
    const names = await readdir(this.#path);
    const unused = names.filter((name) => !this.#kept.has(name));
    // Directories stay: they are not Berth's.
    await Promise.all(unused.map((name) => unlink(this.#pathOf(name)).catch(() => {})));
    this.#kept.clear();
  }

  #pathOf(file: string): string {
    return path.join(this.#path, path.basename(file));
  }
}

/** A file in segments, so that the first segment can be removed while the last is being written. */
class SegmentedFile implements Spill {
  readonly #directory: string;
  /** Chosen at the first write: most transcripts stay in memory. */
  #prefix: string | undefined;
  #segment: Segment | undefined;
  #count = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async write(pieces: readonly Uint8Array[]): Promise<StoredBytes[]> {
    if (this.#segment !== undefined && this.#segment.size >= SEGMENT_BYTES) await this.seal();
    this.#prefix ??= path.join(this.#directory, randomBase32(16));
    this.#segment ??= await Segment.create(`${this.#prefix}.${this.#count++}`);
    return this.#segment.append(pieces);
  }

  async seal(): Promise<void> {
    const segment = this.#segment;
    this.#segment = undefined;
    await segment?.seal();
  }
}

/** One file of a {@link SegmentedFile}. It is removed when its last piece is dropped. */
class Segment {
  /** Its name in the directory. */
  readonly name: string;
  readonly #path: string;
  /**
   * Open while the file is written; closing it waits for reads. Later reads open the file themselves, so that ended
   * transcripts hold no descriptor.
   */
  #handle: FileHandle | undefined;
  size = 0;
  #pieces = 0;
  #readers = 0;

  private constructor(file: string, handle: FileHandle | undefined) {
    this.#path = file;
    this.name = path.basename(file);
    this.#handle = handle;
  }

  static async create(file: string): Promise<Segment> {
    return new Segment(file, await openPatiently(file, "wx+"));
  }

  /** A file that an earlier run of the service wrote. */
  static recover(file: string): Segment {
    return new Segment(file, undefined);
  }

  async append(pieces: readonly Uint8Array[]): Promise<StoredBytes[]> {
    const handle = this.#handle;
    if (handle === undefined) throw new Error("the segment is sealed");
    const total = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const { bytesWritten } = await handle.writev(pieces, this.size);
    if (bytesWritten < total) throw Object.assign(new Error("the disk took only a part"), { code: "ENOSPC" });
    return pieces.map((piece) => this.piece(this.size, piece.length));
  }

  /** Returns a piece of the file. The file exists at least until the piece is dropped. */
  piece(start: number, length: number): StoredBytes {
    this.#pieces++;
    this.size = Math.max(this.size, start + length);
    return new Piece(this, start);
  }

  /** Forgets a piece. */
  drop(): void {
    this.#pieces--;
    this.#removeIfUnused();
  }

  async seal(): Promise<void> {
    const handle = this.#handle;
    this.#handle = undefined;
    await handle?.close();
    this.#removeIfUnused();
  }

  async read(position: number, length: number): Promise<Buffer> {
    this.#readers++;
    try {
      return await this.#readHeld(position, length);
    } finally {
      this.#readers--;
      this.#removeIfUnused();
    }
  }

  #readHeld(position: number, length: number): Promise<Buffer> {
    if (this.#handle !== undefined) return readFrom(this.#handle, position, length);
    return opened.run(async () => {
      const handle = await openPatiently(this.#path, "r");
      return readFrom(handle, position, length).finally(() => handle.close());
    });
  }

  #removeIfUnused(): void {
    if (this.#handle !== undefined || this.#pieces > 0 || this.#readers > 0) return;
    rm(this.#path, { force: true }).catch(() => {
      // The next start of the service sweeps the file.
    });
  }
}

/** Opens a file; if the service may open no more files, once it may. */
async function openPatiently(file: string, flags: "r" | "wx+"): Promise<FileHandle> {
  for (;;) {
    try {
      return await open(file, flags, 0o600);
    } catch (error) {
      if (!/^E[MN]FILE$/.test(codeOf(error) ?? "")) throw error;
    }
    await sleep(RETRY_MS);
  }
}

async function readFrom(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafeSlow(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) throw new Error("a spilled transcript is shorter than what was written");
    done += bytesRead;
  }
  return buffer;
}

/** A part of a segment. There may be a hundred thousand of a process. */
class Piece implements StoredBytes {
  readonly position: number;
  readonly #segment: Segment;
  #isDropped = false;

  constructor(segment: Segment, position: number) {
    this.position = position;
    this.#segment = segment;
  }

  get file(): string {
    return this.#segment.name;
  }

  read(from: number, to: number): Promise<Buffer> {
    return this.#segment.read(this.position + from, to - from);
  }

  drop(): void {
    if (!this.#isDropped) this.#segment.drop();
    this.#isDropped = true;
  }
}
