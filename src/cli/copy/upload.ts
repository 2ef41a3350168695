import { constants, type Stats } from "node:fs";
import { lstat, open, readdir, readlink, stat } from "node:fs/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import {
  type FileInfo,
  FileKind,
  type UploadArchiveRequestSchema,
  type UploadFileRequestSchema,
} from "../../../gen/ts/berth/v1/file_pb.js";
import { type ByteString, fromBytes, fromText, toBytes, toText } from "../../base/byte-string.ts";
import type { PlainTarEntry } from "../../files/tar/tar-entry.ts";
import { END_OF_TAR, encodeEntry, padding } from "../../files/tar/tar-writer.ts";
import type { ServiceClient } from "../client.ts";
import { Failed } from "../exit.ts";
import { reasonOf } from "../failure.ts";
import { type Chunks, contentOf, feeding, inMessages, readLocalFile } from "./local-file.ts";
import { inside, type LocalPlace, nameOf, type SandboxPlace } from "./place.ts";
import type { CopyProgress } from "./progress.ts";

/** What copies in both directions need. */
export interface CopyParts {
  readonly client: ServiceClient;
  readonly stdin: Chunks;
  /** User in the sandbox. Undefined: the sandbox's default. */
  readonly user: string | undefined;
  /** Whether to create missing parent directories of the target. */
  readonly parents: boolean;
  readonly progress: CopyProgress;
  readonly onLeftOut: OnLeftOut;
  readonly signal: AbortSignal;
}

/** Copies a file, a directory or stdin into a sandbox. */
export async function upload(parts: CopyParts, from: LocalPlace, to: SandboxPlace): Promise<void> {
  const standing = await statRemote(parts, to.sandboxId, to.path);
  const isDirectory = standing?.kind === FileKind.DIRECTORY;
  if (from.kind === "stream") {
    if (isDirectory) await uploadArchive(parts, to, parts.progress.count(parts.stdin));
    else await uploadFile(parts, to, standing, { chunks: parts.stdin });
    return;
  }
  const name = nameOf(from.path);
  const goesInto = isDirectory || to.path.endsWith("/");
  if ((await stat(from.path)).isDirectory()) {
    await uploadTree(parts, from.path, isDirectory ? { ...to, path: inside(to.path, name) } : to);
    return;
  }
  const target = goesInto ? { ...to, path: inside(to.path, name) } : to;
  const replaced = goesInto ? await statRemote(parts, target.sandboxId, target.path) : standing;
  const { stat: info, size, chunks } = await readLocalFile(from.path);
  await uploadFile(parts, target, replaced, { chunks, size, mode: info.mode & 0o777 });
}

async function uploadFile(
  { client, progress, user, parents, signal }: CopyParts,
  { sandboxId, path }: SandboxPlace,
  replaced: FileInfo | undefined,
  source: { readonly chunks: Chunks; readonly size?: number | undefined; readonly mode?: number },
): Promise<void> {
  const { size } = source;
  const header = {
    sandboxId,
    path,
    user,
    createParents: parents,
    sizeBytes: size === undefined ? undefined : BigInt(size),
    // An existing file keeps its mode, as with any copy.
    mode: replaced ? undefined : source.mode,
  };
  type Message = MessageInitShape<typeof UploadFileRequestSchema>;
  async function* messages(chunks: Chunks): AsyncGenerator<Message> {
    yield { part: { case: "header", value: header } };
    for await (const chunk of inMessages(chunks)) yield { part: { case: "chunk", value: chunk } };
  }
  await feeding(progress.count(source.chunks, size), (chunks) =>
    client.files.uploadFile(messages(chunks), { signal }),
  );
}

/** Copies a directory to a path. */
async function uploadTree(parts: CopyParts, directory: string, to: SandboxPlace): Promise<void> {
  const { client, user, signal } = parts;
  const { sandboxId, path } = to;
  const made = (await statRemote(parts, sandboxId, path)) === undefined;
  if (made) {
    const mode = (await stat(directory)).mode & 0o777;
    const request = { sandboxId, path, mode, createParents: parts.parents, user };
    await client.files.makeDirectory(request, { signal });
  }
  try {
    await uploadArchive(parts, to, parts.progress.count(packTree(directory, parts.onLeftOut)));
  } catch (error) {
    // Nothing was unpacked into it. If it cannot be removed, the original error still matters more.
    if (made) await client.files.removeFile({ sandboxId, path, user }).catch(() => {});
    throw error;
  }
}

async function uploadArchive(
  { client, user, parents, signal }: CopyParts,
  { sandboxId, path }: SandboxPlace,
  source: Chunks,
): Promise<void> {
  type Message = MessageInitShape<typeof UploadArchiveRequestSchema>;
  async function* messages(chunks: Chunks): AsyncGenerator<Message> {
    yield { part: { case: "header", value: { sandboxId, path, user, createParents: parents } } };
    for await (const chunk of inMessages(chunks)) yield { part: { case: "chunk", value: chunk } };
  }
  await feeding(source, (chunks) => client.files.uploadArchive(messages(chunks), { signal }));
}

/** The stats of a path in a sandbox, with links followed. Undefined if there is nothing. */
export async function statRemote(
  { client, user, signal }: CopyParts,
  sandboxId: string,
  path: string,
): Promise<FileInfo | undefined> {
  try {
    const { file } = await client.files.statFile({ sandboxId, path, user, followSymlink: true }, { signal });
    return file;
  } catch (error) {
    if (reasonOf(error) === ErrorReason.FILE_NOT_FOUND) return undefined;
    throw error;
  }
}

/** Reports an entry that is not copied, and what it is. */
export type OnLeftOut = (file: string, what: string) => void;

/**
 * Packs the content of a directory into a tar: files, directories and symbolic links, with modes and times. Leaves out
 * everything else.
 */
async function* packTree(directory: string, onLeftOut: OnLeftOut): AsyncGenerator<Uint8Array> {
  yield* packDirectory(fromText(directory), "", onLeftOut);
  yield END_OF_TAR;
}

async function* packDirectory(
  directory: ByteString,
  prefix: ByteString,
  onLeftOut: OnLeftOut,
): AsyncGenerator<Uint8Array> {
  const names = await readdir(toBytes(directory), { encoding: "buffer" });
  for (const name of names.map(fromBytes).sort()) {
    const file = `${directory}/${name}`;
    const entryName = `${prefix}${name}`;
    const stat = await lstat(toBytes(file));
    if (stat.isDirectory()) {
      yield header(entryName, "directory", stat);
      yield* packDirectory(file, `${entryName}/`, onLeftOut);
    } else if (stat.isSymbolicLink()) {
      const linkName = fromBytes(await readlink(toBytes(file), { encoding: "buffer" }));
      yield header(entryName, "symlink", stat, { linkName });
    } else if (stat.isFile()) yield* packFile(file, entryName);
    else onLeftOut(toText(file), kindOf(stat));
  }
}

async function* packFile(file: ByteString, entryName: ByteString): AsyncGenerator<Uint8Array> {
  const handle = await open(toBytes(file), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = await handle.stat();
    yield header(entryName, "file", stat, { size: stat.size });
    let left = stat.size;
    if (left > 0) {
      for await (const chunk of contentOf(handle, left)) {
        left -= chunk.length;
        yield chunk;
      }
    }
    if (left > 0) throw new Failed(`${toText(file)} became shorter while it was read`);
    yield padding(stat.size);
  } finally {
    await handle.close();
  }
}

function header(
  name: ByteString,
  kind: PlainTarEntry["kind"],
  { mode, mtimeMs }: Stats,
  more: Partial<PlainTarEntry> = {},
): Buffer {
  const modifyTime = Math.floor(mtimeMs / 1000);
  const none = { linkName: "", uid: 0, gid: 0, size: 0, deviceMajor: 0, deviceMinor: 0 };
  return encodeEntry({ ...none, name, kind, mode: mode & 0o7777, modifyTime, ...more }, "pax");
}

function kindOf(stat: Stats): string {
  if (stat.isSocket()) return "a socket";
  return stat.isFIFO() ? "a named pipe" : "a device";
}
