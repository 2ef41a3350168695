import type { ByteString } from "../../base/byte-string.ts";
import { BerthError, hasReason } from "../../base/errors.ts";
import { Placing } from "./sparse-map.ts";
import type { PlainTarEntry, SparseMap, TarEntry, TarKind } from "./tar-entry.ts";
import { readTar, type TarItem } from "./tar-reader.ts";
import { END_OF_TAR, encodeEntry, gather, padding } from "./tar-writer.ts";

/** Small pieces are joined into chunks of this size. */
const CHUNK_BYTES = 256 * 1024;
/** If the holes of a file are smaller in total, they are written as zeros, which every tar can read. */
const MIN_HOLE_BYTES = 1024 * 1024;

/** Kinds that an import refuses. */
const SPECIAL: ReadonlySet<TarKind> = new Set(["fifo", "character-device", "block-device"]);
/**
 * Limit for the memory that the names of omitted FIFOs and devices take. Beyond it, hard links to them stay in the
 * archive. FIFOs take no disk space, so no quota limits their number.
 */
const MAX_SPECIAL_BYTES = 1024 * 1024;
/** About what a name takes besides its bytes. */
const NAME_BYTES = 200;

interface RestateOptions {
  /** Where the tool comes from, for the error for a tar that cannot be parsed. */
  readonly whose: string;
  /** Whether to omit the entry with this name, and hard links to it. */
  readonly isHidden: (name: ByteString) => boolean;
  /** Whether to omit FIFOs and devices, which Berth unpacks nowhere, and hard links to them. Default false. */
  readonly importable?: boolean;
}

/**
 * Rewrites a tar of the directory `.`, written by any tool, in the standard dialect, with names relative to the
 * directory.
 * @throws `UNSUPPORTED` for a tar that cannot be parsed.
 */
export function restateTar(
  chunks: AsyncIterable<Uint8Array>,
  options: RestateOptions,
): AsyncGenerator<Buffer> {
  return restateItems(readTar(chunks), options);
}

/** Like {@link restateTar}, for items that were already read. */
export function restateItems(items: AsyncIterable<TarItem>, options: RestateOptions): AsyncGenerator<Buffer> {
  return gather(restate(shown(items, options), options.whose), CHUNK_BYTES);
}

async function* shown(
  items: AsyncIterable<TarItem>,
  { isHidden, importable = false }: RestateOptions,
): AsyncGenerator<TarItem> {
  const special = new Set<ByteString>();
  let specialBytes = 0;
  let isLeftOut = false;
  for await (const item of items) {
    if (item.type === "entry") {
      const { name, kind, linkName } = item.entry;
      const isSpecial = importable && SPECIAL.has(kind);
      if (isSpecial && specialBytes < MAX_SPECIAL_BYTES) {
        special.add(name);
        specialBytes += name.length + NAME_BYTES;
      }
      const isHiddenLink = kind === "hard-link" && (isHidden(linkName) || special.has(linkName));
      isLeftOut = isSpecial || isHiddenLink || isHidden(name);
    }
    if (!isLeftOut) yield item;
  }
}

async function* restate(items: AsyncIterable<TarItem>, whose: string): AsyncGenerator<Buffer> {
  let size = 0;
  let filled: FilledHoles | undefined;
  try {
    for await (const item of items) {
      if (item.type === "content") {
        if (filled === undefined) yield item.data;
        else yield* filled.next(item.data);
        continue;
      }
      if (filled !== undefined) yield* filled.rest();
      yield padding(size);
      const entry = relative(item.entry, whose);
      filled =
        entry?.sparse && isNearlyWhole(entry.sparse, entry.size) ? new FilledHoles(entry.sparse) : undefined;
      const written = filled && entry ? { ...entry, size: filled.realSize, sparse: undefined } : entry;
      size = written?.size ?? 0;
      if (written !== undefined) yield encodeEntry(written, "pax");
    }
  } catch (error) {
    if (!hasReason(error, "ARCHIVE_REJECTED")) throw error;
    throw new BerthError("UNSUPPORTED", `The tar of ${whose} cannot be parsed. ${error.message}`);
  }
  if (filled !== undefined) yield* filled.rest();
  yield padding(size);
  yield END_OF_TAR;
}

function isNearlyWhole({ realSize }: SparseMap, size: number): boolean {
  return realSize - size < MIN_HOLE_BYTES;
}

/** Fills the holes of a file with zeros. */
class FilledHoles {
  readonly realSize: number;
  readonly #placing: Placing;
  #end = 0;

  constructor(map: SparseMap) {
    this.realSize = map.realSize;
    this.#placing = new Placing(map);
  }

  /** Yields the next bytes of data, preceded by the hole before them. */
  *next(bytes: Buffer): Generator<Buffer> {
    for (const { offset, data } of this.#placing.place(bytes)) {
      if (offset > this.#end) yield Buffer.alloc(offset - this.#end);
      yield data;
      this.#end = offset + data.length;
    }
  }

  /** Yields the hole at the end. */
  *rest(): Generator<Buffer> {
    if (this.realSize > this.#end) yield Buffer.alloc(this.realSize - this.#end);
    this.#end = this.realSize;
  }
}

/** The entry without the leading `./` in its name and in a hard link's target; undefined for the directory itself. */
function relative(entry: TarEntry, whose: string): PlainTarEntry | undefined {
  const { kind } = entry;
  if (kind === "other") {
    throw new BerthError("UNSUPPORTED", `The tar of ${whose} writes entries of a kind that is not standard.`);
  }
  const name = stripDot(entry.name);
  if (name === "") return undefined;
  const linkName = kind === "hard-link" ? stripDot(entry.linkName) : entry.linkName;
  return { ...entry, kind, name, linkName };
}

function stripDot(name: ByteString): ByteString {
  return name === "." ? "" : name.replace(/^\.\/+/, "");
}

/**
 * Messages of GNU's and busybox's tar about files that they are right to omit, or that they read as they are at that
 * moment.
 */
const LEFT_OUT =
  /(socket ignored|unknown file type(; file ignored)?|file (removed before|changed as) we read it)$|shrank by |error exit delayed|Exiting with failure status/i;

/** Messages of a tar about a file that vanished, or became something else, while the tar was reading it. */
const CHANGED =
  /: (no such file or directory|not a directory|is a directory|too many levels of symbolic links|invalid argument|no such device or address|stale file handle)$/i;

/** The largest exit code for such messages: GNU's tar exits with 1 or 2, busybox's with 1. */
export const LAST_CODE_OF_TAR = 2;

/** Whether a line of a tar's stderr is about a file that it was right to omit, or that changed meanwhile. */
export function isHarmless(line: string): boolean {
  return line === "" || LEFT_OUT.test(line) || CHANGED.test(line);
}

/** Whether a tar refuses an option that it does not know, such as the one for holes. It then writes nothing. */
export function refusesOption(stderr: string): boolean {
  return /(unrecognized|invalid|unknown|illegal) option/i.test(stderr);
}

/** The error messages of a tar, without harmless ones. */
export function complaintsOf(stderr: string): string[] {
  return stderr.split("\n").filter((line) => !isHarmless(line));
}

/**
 * Options of GNU's tar for archives to compare: entries sorted by name, and each hard link as a separate file, because
 * tracking hard links could take unlimited memory.
 */
export const SORTED_FILES = ["--sort=name", "--hard-dereference"] as const;
