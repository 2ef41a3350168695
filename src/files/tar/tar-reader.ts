import type { ByteString } from "../../base/byte-string.ts";
import { ByteSource } from "./byte-source.ts";
import { readOldGnuMap, readPaxMap } from "./sparse-map.ts";
import {
  BLOCK_BYTES,
  decodeHeader,
  decodePax,
  kindOf,
  MAX_RECORDS,
  notTar,
  paddingOf,
  type RawHeader,
  type TarEntry,
  tooManyRecords,
} from "./tar-entry.ts";

/** A part of a tar: an entry, or a piece of its content. */
export type TarItem =
  | { readonly type: "entry"; readonly entry: TarEntry }
  | { readonly type: "content"; readonly data: Buffer };

/** Limit for the names and pax records of one entry. Even the longest names are far smaller. */
const MAX_EXTENSION_BYTES = 1024 * 1024;

/** How much may follow the end marker. */
const MAX_REST_BYTES = 16 * 1024 * 1024;

/** Fields that precede an entry's own header and override it. */
interface Extension {
  name?: ByteString;
  linkName?: ByteString;
  pax?: Map<string, ByteString>;
  bytes: number;
}

/**
 * Reads a tar of any dialect as a stream: v7, ustar, GNU with its long names and large numbers, pax. For files with
 * holes it reads GNU's old form and pax's form 1.0. Names keep their bytes. Data after the end marker is ignored.
 * @throws `ARCHIVE_REJECTED` for data that is not a tar or is truncated; errors of the source.
 */
export async function* readTar(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<TarItem> {
  const source = new ByteSource(chunks, () => notTar("it ends too early"));
  let extension: Extension = { bytes: 0 };
  for (let count = 0; ; ) {
    const block = await source.take(BLOCK_BYTES);
    if (block === undefined || isZero(block)) {
      if (block === undefined && count === 0) throw notTar("it is empty");
      if (extension.bytes > 0) throw notTar("it ends too early");
      // Drain the rest, so that its sender does not block. Tars pad their last record.
      if (!(await source.skipRest(MAX_REST_BYTES))) throw notTar("too much follows its end");
      return;
    }
    count++;
    const header = decodeHeader(block);
    if ("LKxXg".includes(header.type)) {
      await readExtension(source, header, extension);
      continue;
    }
    const entry = await withHoles(source, block, combine(header, extension), extension);
    extension = { bytes: 0 };
    yield { type: "entry", entry };
    for (let left = entry.size; left > 0; ) {
      const data = await source.some(left);
      left -= data.length;
      yield { type: "content", data };
    }
    await source.skip(paddingOf(entry.size));
  }
}

async function readExtension(source: ByteSource, header: RawHeader, extension: Extension): Promise<void> {
  extension.bytes += header.size + BLOCK_BYTES;
  if (header.size < 0 || extension.bytes > MAX_EXTENSION_BYTES)
    throw notTar("an extended header is too large");
  const body = await source.take(header.size);
  if (body === undefined) throw notTar("it ends too early");
  await source.skip(paddingOf(header.size));
  switch (header.type) {
    case "L":
      extension.name = untilNul(body);
      break;
    case "K":
      extension.linkName = untilNul(body);
      break;
    case "g": {
      const keys = decodePax(body).keys();
      if ([...keys].some((key) => PER_ENTRY.has(key))) throw notTar("a global header names a file");
      // Skip everything else, such as comments, which do not belong to the entry.
      extension.bytes -= header.size + BLOCK_BYTES;
      break;
    }
    default:
      extension.pax ??= new Map();
      for (const [key, value] of decodePax(body)) extension.pax.set(key, value);
      if (extension.pax.size > MAX_RECORDS) throw tooManyRecords();
  }
}

/** Keys that make sense only for a single entry. */
const PER_ENTRY: ReadonlySet<string> = new Set(["path", "linkpath", "size"]);

function combine(header: RawHeader, extension: Extension): TarEntry {
  const { pax } = extension;
  const name = pax?.get(SPARSE.name) ?? pax?.get("path") ?? extension.name ?? header.name;
  // v7 tars mark directories by a trailing slash in their names.
  const kind = header.type === "0" && name.endsWith("/") ? "directory" : kindOf(header.type);
  const size = paxNumber(pax, "size") ?? header.size;
  if (size < 0) throw notTar("a size is negative");
  return {
    ...header,
    name,
    kind,
    linkName:
      kind === "hard-link" || kind === "symlink"
        ? (pax?.get("linkpath") ?? extension.linkName ?? header.linkName)
        : "",
    uid: paxNumber(pax, "uid") ?? header.uid,
    gid: paxNumber(pax, "gid") ?? header.gid,
    modifyTime: Math.floor(paxNumber(pax, "mtime") ?? header.modifyTime),
    // For links some tars write the size of the target, but no content follows.
    size: kind === "file" || kind === "other" ? size : 0,
  };
}

/** Keys of pax's form of files with holes. */
const SPARSE = {
  prefix: "GNU.sparse.",
  name: "GNU.sparse.name",
  major: "GNU.sparse.major",
  minor: "GNU.sparse.minor",
  realSize: "GNU.sparse.realsize",
};

/** The entry with its sparse map, which is read here if it precedes the content. */
async function withHoles(
  source: ByteSource,
  block: Buffer,
  entry: TarEntry,
  { pax }: Extension,
): Promise<TarEntry> {
  if (isOldGnuSparse(block)) {
    return { ...entry, kind: "file", sparse: await readOldGnuMap(source, block, entry.size) };
  }
  if (![...(pax?.keys() ?? [])].some((key) => key.startsWith(SPARSE.prefix))) return entry;
  const isKnown = pax?.get(SPARSE.major) === "1" && pax.get(SPARSE.minor) === "0" && pax.has(SPARSE.name);
  const realSize = paxNumber(pax, SPARSE.realSize);
  if (!isKnown || realSize === undefined || entry.kind !== "file") return { ...entry, kind: "other" };
  const { map, size } = await readPaxMap(source, realSize, entry.size);
  return { ...entry, size, sparse: map };
}

function isOldGnuSparse(block: Buffer): boolean {
  return block[156] === "S".charCodeAt(0) && block.toString("latin1", 257, 265) === "ustar  \0";
}

function paxNumber(pax: Map<string, ByteString> | undefined, key: string): number | undefined {
  const value = pax?.get(key);
  if (value === undefined || value === "") return undefined;
  const number = Number(value);
  if (!/^-?\d{1,15}(\.\d*)?$/.test(value)) throw notTar(`the extended header's ${key} is not a number`);
  return number;
}

function untilNul(body: Buffer): ByteString {
  const end = body.indexOf(0);
  return body.toString("latin1", 0, end < 0 ? body.length : end);
}

function isZero(block: Buffer): boolean {
  return block.every((byte) => byte === 0);
}
