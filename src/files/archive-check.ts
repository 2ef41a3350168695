import { type ByteString, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { noMemory } from "../base/memory-budget.ts";
import type { PlainTarEntry, TarEntry } from "./tar/tar-entry.ts";

const MAX_ENTRIES = 500_000;
/** Limit for all names together, which are kept in memory. */
const MAX_NAME_BYTES = 64 * 1024 * 1024;
/** Leaves room for the path's prefix until it is moved into place. */
const MAX_PATH_BYTES = 4000;
const MAX_NAME_BYTES_EACH = 255;
/** About what an entry takes in memory besides its name, here and where it is unpacked. */
const ENTRY_BYTES = 200;
/** Drops set-user-id and set-group-id. */
const KEPT_MODE_BITS = 0o1777;
/** The largest time that every tar can write. Times before 1970 are bounded alike. */
const LAST_TIME = 0o77777777777;

type Standing = "file" | "symlink" | "directory";

/**
 * Checks the entries of an archive, in order, and admits those that stay inside the target directory with any unpacking
 * tool: files, directories, symbolic links with nothing below them, and hard links to earlier entries.
 */
export class ArchiveCheck {
  /** The kinds of earlier entries, by resolved name. */
  readonly #known = new Map<ByteString, Standing>();
  readonly #take: (bytes: number) => boolean;
  #nameBytes = 0;
  #entryCount = 0;
  #sizeBytes = 0;

  /**
   * @param take called with the memory that further names take. Returns whether there is room for that. Default: there
   *   is.
   */
  constructor(take: (bytes: number) => boolean = () => true) {
    this.#take = take;
  }

  get entryCount(): number {
    return this.#entryCount;
  }

  /** Total bytes of the regular files so far, without holes. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /**
   * Returns the entry to unpack, preceded by directories on its path that the archive does not contain; nothing for the
   * target itself.
   * @throws `ARCHIVE_REJECTED`; `TOO_MANY_OPERATIONS` if there is no memory for its name.
   */
  admit(entry: TarEntry): PlainTarEntry[] {
    const { kind } = entry;
    if (++this.#entryCount > MAX_ENTRIES) {
      throw refuse(entry, `the archive has more than ${MAX_ENTRIES} entries`);
    }
    this.#sizeBytes += entry.size;
    if (kind === "fifo" || kind === "character-device" || kind === "block-device") {
      throw refuse(entry, "it is a device or a FIFO");
    }
    if (kind === "other") {
      throw refuse(entry, "it is of a kind that is not supported");
    }
    const name = resolveName(entry, entry.name, "its name");
    if (name === "") {
      if (kind !== "directory") throw refuse(entry, "it has no name");
      return [];
    }
    const above = this.#checkAbove(entry, name);
    const linkName =
      kind === "hard-link" ? resolveName(entry, entry.linkName, "its target's name") : entry.linkName;
    this.#add(entry, name, this.#knownOf(entry, linkName));
    const plain: PlainTarEntry = {
      name,
      kind,
      linkName,
      mode: entry.mode & KEPT_MODE_BITS,
      uid: 0,
      gid: 0,
      modifyTime: Math.min(Math.max(entry.modifyTime, -LAST_TIME), LAST_TIME),
      size: entry.size,
      sparse: entry.sparse,
      deviceMajor: 0,
      deviceMinor: 0,
    };
    return [...above.map((each) => missingDirectory(each, plain.modifyTime)), plain];
  }

  #knownOf(entry: TarEntry, linkName: ByteString): Standing {
    if (entry.kind === "directory") return "directory";
    if (entry.kind === "symlink") {
      if (entry.linkName === "" || entry.linkName.length > MAX_PATH_BYTES)
        throw refuse(entry, "it links to nowhere");
      return "symlink";
    }
    if (entry.kind !== "hard-link") return "file";
    const linked = this.#known.get(linkName);
    if (linked === undefined || linked === "directory") {
      throw refuse(entry, "it is a hard link to what is not a file of the archive before it");
    }
    return linked;
  }

  /**
   * Checks that everything on the path to an entry is a directory, and returns the directories that the archive does
   * not contain, from the top down. Everything above a known directory is known too.
   */
  #checkAbove(entry: TarEntry, name: ByteString): ByteString[] {
    const missing: ByteString[] = [];
    for (let at = name.lastIndexOf("/"); at >= 0; at = name.lastIndexOf("/", at - 1)) {
      const above = name.slice(0, at);
      const standing = this.#known.get(above);
      if (standing === "directory") break;
      if (standing === "symlink") throw refuse(entry, "it lies below a symbolic link");
      if (standing === "file") throw refuse(entry, "it lies below a file");
      missing.unshift(above);
    }
    for (const above of missing) this.#add(entry, above, "directory");
    return missing;
  }

  #add(entry: TarEntry, name: ByteString, standing: Standing): void {
    const before = this.#known.get(name);
    if (before !== undefined && before !== standing) {
      throw refuse(entry, `the archive has a ${before} of the same name`);
    }
    if (before !== undefined) return;
    this.#nameBytes += name.length;
    if (this.#nameBytes > MAX_NAME_BYTES) throw refuse(entry, "the archive's names are too long in all");
    if (!this.#take(name.length + ENTRY_BYTES)) throw noMemory();
    this.#known.set(name, standing);
  }
}

function missingDirectory(name: ByteString, modifyTime: number): PlainTarEntry {
  const numbers = { mode: 0o755, uid: 0, gid: 0, size: 0, deviceMajor: 0, deviceMinor: 0 };
  return { name, kind: "directory", linkName: "", modifyTime, ...numbers };
}

/** A name relative to the target, without "." and redundant slashes. */
function resolveName(entry: TarEntry, name: ByteString, which: string): ByteString {
  if (name.startsWith("/")) throw refuse(entry, `${which} is absolute`);
  if (name.includes("\0")) throw refuse(entry, `${which} holds NUL`);
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) throw refuse(entry, `${which} holds ".."`);
  const resolved = parts.join("/");
  if (resolved.length > MAX_PATH_BYTES || parts.some((part) => part.length > MAX_NAME_BYTES_EACH)) {
    throw refuse(entry, `${which} is too long`);
  }
  return resolved;
}

function refuse(entry: TarEntry, problem: string): BerthError {
  const name = toText(entry.name);
  return new BerthError(
    "ARCHIVE_REJECTED",
    `The archive was refused, and nothing of it unpacked, for its entry ${JSON.stringify(name)}: ${problem}.`,
    { metadata: { entry: name } },
  );
}
