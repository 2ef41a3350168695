import type { ByteString } from "../base/byte-string.ts";
import { BerthError, hasReason } from "../base/errors.ts";
import { trimEndOf } from "../base/trim.ts";
import type { FileInfo, FileKind } from "../files/file-info.ts";
import { Placing } from "../files/tar/sparse-map.ts";
import type { TarEntry, TarKind } from "../files/tar/tar-entry.ts";
import { readTar, type TarItem } from "../files/tar/tar-reader.ts";

/** What a comparison reports about a file. */
export type TreeFile = Omit<FileInfo, "inode">;

/** One entry of a tree. */
export interface TreeEntry {
  /** Relative to the root of the tree. */
  readonly path: ByteString;
  readonly file: TreeFile;
  /** Major and minor number of a device. Empty for other kinds. */
  readonly device: string;
}

/** A piece of a file's data. Between two pieces there is a hole. */
export interface Piece {
  readonly offset: number;
  readonly data: Buffer;
}

const KINDS: Partial<Record<TarKind, FileKind>> = {
  file: "REGULAR",
  directory: "DIRECTORY",
  symlink: "SYMLINK",
  fifo: "FIFO",
  "character-device": "CHARACTER_DEVICE",
  "block-device": "BLOCK_DEVICE",
};

const SLASH = "/".charCodeAt(0);

/** Orders paths by the bytes of their names. The content of a directory comes before the entries after it. */
export function comparePaths(one: ByteString, other: ByteString): number {
  if (one === other) return 0;
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at++) {
    const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)];
    if (left === right) continue;
    if (left === SLASH) return -1;
    return right === SLASH ? 1 : left - right;
  }
  return one.length - other.length;
}

/**
 * Reads a tar of the directory `.` with sorted entries ({@link comparePaths}) and hard links as files. Reads one entry
 * at a time, and its content only on request. Skips the directory itself.
 * @throws `UNSUPPORTED` for a tar that is not of this kind.
 */
export class TreeEntries {
  readonly #items: AsyncIterator<TarItem>;
  readonly #isHidden: (path: ByteString) => boolean;
  /** The entry whose content is being read. */
  #last: TreeEntry | undefined;
  #placing: Placing | undefined;
  #pieces: Iterator<Piece> | undefined;
  #offset = 0;
  /** The header of the next entry, which ended the content of the last one. */
  #ahead: TarEntry | undefined;

  /** @param isHidden whether to skip a path. */
  constructor(tar: AsyncIterable<Uint8Array>, isHidden: (path: ByteString) => boolean) {
    this.#items = readTar(tar);
    this.#isHidden = isHidden;
  }

  /** The next entry. Undefined: there are no more. Skips the unread content of the last one. */
  async next(): Promise<TreeEntry | undefined> {
    for (;;) {
      while (this.#ahead === undefined) {
        const item = await this.#read();
        if (item === undefined) return undefined;
        if (item.type === "entry") this.#ahead = item.entry;
      }
      const header = this.#ahead;
      this.#ahead = undefined;
      this.#pieces = undefined;
      this.#offset = 0;
      this.#placing = header.sparse && new Placing(header.sparse);
      const entry = entryOf(header);
      if (entry === undefined || this.#isHidden(entry.path)) continue;
      if (this.#last !== undefined && comparePaths(this.#last.path, entry.path) >= 0)
        throw strangeTar("does not sort its entries");
      this.#last = entry;
      return entry;
    }
  }

  /** The next data of the entry that {@link next} returned last, which must be a regular file. Undefined at its end. */
  async piece(): Promise<Piece | undefined> {
    for (;;) {
      const next = this.#pieces?.next();
      if (next !== undefined && !next.done) return next.value;
      if (this.#ahead !== undefined) return undefined;
      const item = await this.#read();
      if (item === undefined) return undefined;
      if (item.type === "entry") {
        this.#ahead = item.entry;
        return undefined;
      }
      const { data } = item;
      if (this.#placing === undefined) {
        const offset = this.#offset;
        this.#offset += data.length;
        return { offset, data };
      }
      this.#pieces = this.#placing.place(data);
    }
  }

  async #read(): Promise<TarItem | undefined> {
    try {
      const { done, value } = await this.#items.next();
      return done ? undefined : value;
    } catch (error) {
      if (!hasReason(error, "ARCHIVE_REJECTED")) throw error;
      throw strangeTar(`cannot be parsed. ${error.message}`);
    }
  }
}

/** An entry. Undefined for the directory itself. */
function entryOf(header: TarEntry): TreeEntry | undefined {
  const path = trimEndOf(header.name.replace(/^\.?\/+/, ""), "/");
  if (path === "" || path === ".") return undefined;
  const kind = KINDS[header.kind];
  if (kind === undefined) throw strangeTar("writes entries of a kind that is not asked for");
  const { mode, uid, gid, linkName, deviceMajor, deviceMinor } = header;
  const isDevice = kind === "CHARACTER_DEVICE" || kind === "BLOCK_DEVICE";
  const sizeBytes = kind === "SYMLINK" ? linkName.length : (header.sparse?.realSize ?? header.size);
  const modifyTime = { seconds: header.modifyTime, nanos: 0 };
  return {
    path,
    file: { kind, sizeBytes, mode, uid, gid, modifyTime, linkTarget: linkName },
    device: isDevice ? `${deviceMajor}:${deviceMinor}` : "",
  };
}

function strangeTar(problem: string): BerthError {
  return new BerthError("UNSUPPORTED", `The workspace cannot be compared: the tar of its files ${problem}.`);
}
