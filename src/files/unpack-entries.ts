import { chmod, type FileHandle, link, lstat, mkdir, open, rm, symlink, utimes } from "node:fs/promises";
import { type ByteString, toBytes } from "../base/byte-string.ts";
import { unlessThere } from "../base/system-errors.ts";
import { ArchiveCheck } from "./archive-check.ts";
import { Placing } from "./tar/sparse-map.ts";
import type { PlainTarEntry, TarEntry } from "./tar/tar-entry.ts";
import { readTar } from "./tar/tar-reader.ts";

const OWNER_BITS = 0o700;

interface UnpackOptions {
  /** Whether to skip an entry, which is then not checked either. Default: skip none. */
  readonly leaveOut?: (entry: TarEntry) => boolean;
  /**
   * Called before each regular file is unpacked, with the total bytes of regular files so far. It may throw to stop.
   */
  readonly onSize?: (sizeBytes: number) => void | Promise<void>;
  /** Whether to set exactly the tar's modes, regardless of the process's umask. Default false. */
  readonly exactModes?: boolean;
  /** Called with the memory that further names take. Returns whether there is room for that. Default: there is. */
  readonly take?: (bytes: number) => boolean;
  readonly signal?: AbortSignal;
}

interface UnpackedEntries {
  /**
   * What is above a directory comes before it. Of several entries for one, the last. Their owner can access them until
   * {@link finishDirectories} sets their modes.
   */
  readonly directories: readonly PlainTarEntry[];
  /** Number of entries, including directories and links. */
  readonly entryCount: number;
  /** Total bytes of regular files. */
  readonly sizeBytes: number;
}

/**
 * Unpacks an untrusted tar into an empty directory on this machine that nobody else uses. Each entry is checked, and
 * none may be below a link. Modes are the tar's, limited by the process's umask unless `exactModes` is set.
 * @throws `ARCHIVE_REJECTED`, `TOO_MANY_OPERATIONS` if there is no memory for its names, and the system's errors.
 */
export async function unpackEntries(
  root: ByteString,
  chunks: AsyncIterable<Uint8Array>,
  { leaveOut, onSize, exactModes = false, take, signal }: UnpackOptions,
): Promise<UnpackedEntries> {
  const check = new ArchiveCheck(take);
  const directories = new Map<ByteString, PlainTarEntry>();
  let file: UnpackedFile | undefined;
  const close = async () => {
    await file?.finish();
    await file?.close();
    file = undefined;
  };
  try {
    for await (const item of readTar(chunks)) {
      signal?.throwIfAborted();
      if (item.type === "content") {
        await file?.write(item.data);
        continue;
      }
      await close();
      if (leaveOut?.(item.entry)) continue;
      const admitted = check.admit(item.entry);
      await onSize?.(check.sizeBytes);
      for (const entry of admitted) {
        const place = toBytes(`${root}/${entry.name}`);
        if (entry.kind === "directory") {
          await mkdir(place, (entry.mode | OWNER_BITS) & 0o777).catch(unlessThere);
          if (exactModes) await chmod(place, entry.mode | OWNER_BITS);
          directories.set(entry.name, entry);
          continue;
        }
        // What GNU tar writes of a file that is named twice, as in "tar cf x.tar dir dir/file".
        if (entry.kind === "hard-link" && entry.linkName === entry.name) continue;
        // A tar may contain a file twice. The last one counts.
        await rm(place, { force: true });
        if (entry.kind === "symlink") await symlink(toBytes(entry.linkName), place);
        else if (entry.kind === "hard-link") await link(toBytes(`${root}/${entry.linkName}`), place);
        else {
          file = new UnpackedFile(await open(place, "wx", entry.mode & 0o777), entry);
          if (exactModes) await file.setMode(entry.mode);
        }
      }
    }
    await close();
    return {
      directories: [...directories.values()],
      entryCount: check.entryCount,
      sizeBytes: check.sizeBytes,
    };
  } finally {
    await file?.close();
  }
}

/** A file that is being unpacked. Holes stay holes. */
class UnpackedFile {
  readonly #handle: FileHandle;
  readonly #entry: PlainTarEntry;
  readonly #placing: Placing | undefined;

  constructor(handle: FileHandle, entry: PlainTarEntry) {
    this.#handle = handle;
    this.#entry = entry;
    this.#placing = entry.sparse && new Placing(entry.sparse);
  }

  async write(bytes: Buffer): Promise<void> {
    if (this.#placing === undefined) return this.#handle.writeFile(bytes);
    for (const { offset, data } of this.#placing.place(bytes)) {
      for (let at = 0; at < data.length; ) {
        at += (await this.#handle.write(data, at, data.length - at, offset + at)).bytesWritten;
      }
    }
  }

  async setMode(mode: number): Promise<void> {
    await this.#handle.chmod(mode);
  }

  async finish(): Promise<void> {
    const { sparse, modifyTime } = this.#entry;
    if (sparse !== undefined) await this.#handle.truncate(sparse.realSize);
    const time = dateOf(modifyTime);
    await this.#handle.utimes(time, time);
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/** Sets the times of directories, and modes that deny access to the owner. */
export async function finishDirectories(
  directories: readonly PlainTarEntry[],
  root: ByteString,
): Promise<void> {
  for (const { name, mode, modifyTime } of directories.toReversed()) {
    const place = toBytes(`${root}/${name}`);
    const time = dateOf(modifyTime);
    await utimes(place, time, time);
    const closed = OWNER_BITS & ~mode;
    if (closed !== 0) await chmod(place, (await lstat(place)).mode & 0o1777 & ~closed);
  }
}

/** Node takes a negative number of seconds for the current time. */
function dateOf(seconds: number): Date {
  return new Date(seconds * 1000);
}
