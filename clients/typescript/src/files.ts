import { allPages, type CallSettings, type Connection, cannotStream, newRequestId } from "./connection.ts";
import { content, duration, pathField } from "./convert.ts";
import { fileChange, fileInfo } from "./convert-file.ts";
import { BerthError } from "./errors.ts";
import { join } from "./kept.ts";
import { Pauses } from "./retry.ts";
import { piecesOf, readableOf } from "./streams.ts";
import { type Subscription, subscribe } from "./subscription.ts";
import type { Content, FileChange, FileInfo, Path, Source, Unpacked } from "./types.ts";
import type { FileInfo as FileMessage } from "./v1/file_pb.js";

/** What one message can carry. */
const MESSAGE_BYTES = 8 * 1024 * 1024;
const PAGE = 1000;
const SLASH = 0x2f;
/** As many links as Linux follows in a path. */
const MAX_LINKS = 40;

/** Options of every call on files. */
export interface FileOptions extends CallSettings {
  /** User to act as: a name or "uid[:gid]". Default: the sandbox's user. */
  readonly user?: string | undefined;
}

/** How a file is written. */
export interface WriteOptions extends FileOptions {
  /** Permission bits. Default: those of the existing file, or 0o644. */
  readonly mode?: number | undefined;
  /** Default true. */
  readonly createParents?: boolean | undefined;
}

/**
 * The files of a sandbox. `sandbox.files`. A path is absolute, or relative to the sandbox's working directory; bytes if
 * it is not UTF-8.
 *
 * All methods may throw: FILE_NOT_FOUND, FILE_KIND for something of another kind, such as a directory, FILE_PERMISSION,
 * INVALID_ARGUMENT for a bad path, SANDBOX_NOT_FOUND, SANDBOX_NOT_RUNNING.
 */
export class Files {
  readonly #connection: Connection;
  readonly #sandbox: { readonly sandboxId: string; readonly generation: bigint };

  constructor(connection: Connection, sandbox: { readonly sandboxId: string; readonly generation: bigint }) {
    this.#connection = connection;
    this.#sandbox = sandbox;
  }

  /**
   * Bytes of a file, from `offset`, at most `limit`. Default: all of it. Throws OFFSET_OUT_OF_RANGE for an offset
   * beyond the end.
   */
  async read(
    path: Path,
    options: FileOptions & { readonly offset?: number; readonly limit?: number } = {},
  ): Promise<Uint8Array> {
    const { offset = 0, limit = Number.POSITIVE_INFINITY, signal } = options;
    if (limit === 0) return new Uint8Array();
    const most = BigInt(Math.min(limit, MESSAGE_BYTES));
    const request = { ...this.#named(path, options), offset: BigInt(offset), limit: most };
    const call = (settings: object) => this.#connection.files.readFile(request, settings);
    const { data, endOfFile } = await this.#connection.again(call, signal);
    if (endOfFile || data.length === limit) return data;
    // Start again: another file may have replaced it, and both halves must be from the same file.
    const pieces: Uint8Array[] = [];
    let size = 0;
    for await (const piece of this.#download(path, options)) {
      pieces.push(piece);
      size += piece.length;
      if (size >= limit) break;
    }
    return join(pieces).subarray(0, limit);
  }

  /** A file as UTF-8 text. Throws a TypeError if it is not UTF-8. */
  async readText(path: Path, options: FileOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await this.read(path, options));
  }

  /**
   * Writes a file of any size, replacing any existing content: a reader sees the old content or the new. `append` adds
   * to the end instead. Returns the metadata of the file after the write.
   */
  async write(
    path: Path,
    data: Content,
    options: WriteOptions & { readonly append?: boolean } = {},
  ): Promise<FileInfo> {
    const { append = false } = options;
    const bytes = content(data);
    if (bytes.length > MESSAGE_BYTES && !append) return this.upload(path, bytes, options);
    let at = 0;
    for (; bytes.length - at > MESSAGE_BYTES; at += MESSAGE_BYTES) {
      await this.#write(path, bytes.subarray(at, at + MESSAGE_BYTES), options, append);
    }
    return this.#write(path, bytes.subarray(at), options, append);
  }

  /**
   * Writes a file from a web stream, a Blob or an async iterable, as fast as the sandbox accepts it. The new content
   * replaces the old at the end, in one step: a failure keeps the old content. A string is content as well, never the
   * path of a local file: for one, pass `createReadStream(file)`.
   */
  async upload(path: Path, source: Source, options: WriteOptions = {}): Promise<FileInfo> {
    if (!this.#connection.streamsRequests) return this.#uploadInPieces(path, source, options);
    const { mode, createParents = true, signal } = options;
    const header = {
      ...this.#named(path, options),
      ...(mode !== undefined && { mode }),
      ...sizeOf(source),
      createParents,
    };
    const { file } = await this.#connection.upload(
      header,
      source,
      (messages, settings) => this.#connection.files.uploadFile(messages, settings),
      signal,
    );
    return this.#file(path, file);
  }

  /**
   * A file as a web stream, from `offset`. If the connection breaks, it continues where it stopped, or throws
   * FAILED_PRECONDITION if the file has changed.
   */
  download(path: Path, options: FileOptions & { readonly offset?: number } = {}): ReadableStream<Uint8Array> {
    return readableOf((signal) => this.#download(path, { ...options, signal }), options.signal);
  }

  /** Unpacks an uncompressed tar into a directory. Throws ARCHIVE_REJECTED for an entry that leaves it; not in browsers. */
  async uploadArchive(
    source: Source,
    path: Path = ".",
    options: Omit<WriteOptions, "mode"> = {},
  ): Promise<Unpacked> {
    const { createParents = true, signal } = options;
    const header = { ...this.#named(path, options), createParents };
    const { entryCount, sizeBytes } = await this.#connection.upload(
      header,
      source,
      (messages, settings) => this.#connection.files.uploadArchive(messages, settings),
      signal,
    );
    return { entryCount: Number(entryCount), size: Number(sizeBytes) };
  }

  /** A directory, or one file, as an uncompressed tar. It is complete only when the stream has ended. */
  downloadArchive(path: Path, options: FileOptions = {}): ReadableStream<Uint8Array> {
    const request = this.#named(path, options);
    const call = (settings: object) => this.#connection.files.downloadArchive(request, settings);
    return readableOf((signal) => this.#connection.chunks(call, signal), options.signal);
  }

  /** The metadata of a file; its name is its absolute path. */
  async stat(
    path: Path,
    options: FileOptions & { readonly followSymlink?: boolean } = {},
  ): Promise<FileInfo> {
    const { followSymlink = true, signal } = options;
    const request = { ...this.#named(path, options), followSymlink };
    const call = (settings: object) => this.#connection.files.statFile(request, settings);
    const answer = await this.#connection.again(call, signal);
    return fileInfo(answer.path, answer.rawPath, answer.file);
  }

  /** Whether something exists at the path. */
  async exists(path: Path, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, followSymlink: false });
      return true;
    } catch (error) {
      if (BerthError.is(error, "FILE_NOT_FOUND")) return false;
      throw error;
    }
  }

  /** The entries of a directory, in byte order of their names. */
  list(path: Path = ".", options: FileOptions = {}): Promise<FileInfo[]> {
    return allPages(async (pageToken) => {
      const request = { ...this.#named(path, options), pageSize: PAGE, pageToken };
      const call = (settings: object) => this.#connection.files.listDirectory(request, settings);
      const { entries, nextPageToken } = await this.#connection.again(call, options.signal);
      return {
        items: entries.map(({ name, rawName, file }) => fileInfo(name, rawName, file)),
        nextPageToken,
      };
    });
  }

  /** Creates a directory. With `createParents` (default), an existing one is not an error. */
  async mkdir(path: Path, options: WriteOptions = {}): Promise<FileInfo> {
    const { mode, createParents = true, signal } = options;
    const request = {
      ...this.#named(path, options),
      requestId: newRequestId(),
      ...(mode !== undefined && { mode }),
      createParents,
    };
    const call = (settings: object) => this.#connection.files.makeDirectory(request, settings);
    return this.#file(path, (await this.#connection.again(call, signal)).file);
  }

  /** Removes a file, an empty directory or, with `recursive`, a tree. */
  async remove(
    path: Path,
    options: FileOptions & { readonly recursive?: boolean; readonly allowMissing?: boolean } = {},
  ): Promise<void> {
    const { recursive = false, allowMissing = false, signal } = options;
    const request = { ...this.#named(path, options), requestId: newRequestId(), recursive, allowMissing };
    await this.#connection.again((settings) => this.#connection.files.removeFile(request, settings), signal);
  }

  /** Moves a file or directory to another path. */
  async move(
    source: Path,
    target: Path,
    options: FileOptions & { readonly overwrite?: boolean; readonly createParents?: boolean } = {},
  ): Promise<FileInfo> {
    const { overwrite = false, createParents = false, user = "", signal } = options;
    const request = {
      requestId: newRequestId(),
      ...this.#sandbox,
      user,
      overwrite,
      createParents,
      ...(typeof source === "string" ? { sourcePath: source } : { rawSourcePath: source }),
      ...(typeof target === "string" ? { targetPath: target } : { rawTargetPath: target }),
    };
    const call = (settings: object) => this.#connection.files.moveFile(request, settings);
    return this.#file(target, (await this.#connection.again(call, signal)).file);
  }

  /**
   * The changes in a directory, which is scanned every `intervalMs` (default 1000, at least 100). Fails if the connection
   * breaks: a new watch would not see what changed meanwhile.
   */
  watch(
    path: Path = ".",
    options: FileOptions & { readonly recursive?: boolean; readonly intervalMs?: number } = {},
  ): Subscription<FileChange> {
    const { recursive = false, intervalMs, signal } = options;
    const request = { ...this.#named(path, options), recursive, interval: duration(intervalMs) };
    return subscribe(this.#connection, {
      connect: (_last: FileChange | undefined, settings) =>
        this.#connection.files.watchDirectory(request, settings),
      convert: ({ item }) => (item.case === "change" ? fileChange(item.value) : undefined),
      announced: true,
      resumes: false,
      signal,
    });
  }

  async #write(path: Path, data: Uint8Array, options: WriteOptions, append: boolean): Promise<FileInfo> {
    const { mode, createParents = true, signal } = options;
    const request = {
      ...this.#named(path, options),
      requestId: newRequestId(),
      data,
      ...(mode !== undefined && { mode }),
      append,
      createParents,
    };
    const call = (settings: object) => this.#connection.files.writeFile(request, settings);
    return this.#file(path, (await this.#connection.again(call, signal)).file);
  }

  /** Like `upload`, for when a call cannot send a stream: appends to a file next to it, which then replaces it. */
  async #uploadInPieces(path: Path, source: Source, options: WriteOptions): Promise<FileInfo> {
    const { user, signal } = options;
    const pieces = piecesOf(source, signal);
    try {
      if (typeof path !== "string") throw cannotStream();
      const replaced = await this.#replacedAt(withoutSlashes(path), { user, signal });
      const part = `${replaced.path}.${newRequestId().slice(0, 8)}.part`;
      // Without an explicit mode, it gets that of the file it replaces.
      const { mode = replaced.mode } = options;
      try {
        await this.#write(part, new Uint8Array(), { ...options, mode }, false);
        for await (const piece of pieces) await this.#write(part, piece, { user, signal }, true);
        signal?.throwIfAborted();
        const file = await this.move(part, replaced.path, { overwrite: true, user, signal });
        return { ...file, name: withoutSlashes(path), rawName: content(withoutSlashes(path)) };
      } catch (error) {
        await this.remove(part, { allowMissing: true, user }).catch(() => {});
        throw error;
      }
    } finally {
      // The loop ends them, unless it never began.
      pieces.return(undefined).catch(() => {});
    }
  }

  /** What an upload to a path replaces, at the end of its links. A move would replace the link itself. */
  async #replacedAt(
    path: string,
    options: FileOptions,
  ): Promise<{ readonly path: string; readonly mode: number | undefined }> {
    let place = path;
    for (let links = 0; links <= MAX_LINKS; links++) {
      const found = await this.#stat(place, options);
      if (found?.kind !== "SYMLINK") return { path: place, mode: found?.mode };
      const { linkTarget } = found;
      // The service resolves it by name, which may lead elsewhere.
      if (linkTarget.split("/").includes("..")) break;
      const directory = linkTarget.startsWith("/") ? "" : place.slice(0, place.lastIndexOf("/") + 1);
      place = directory + linkTarget;
    }
    throw new BerthError(`A browser cannot upload through the link "${path}". Upload to its target.`, {
      code: "UNIMPLEMENTED",
      reason: "UNSUPPORTED",
    });
  }

  /** The metadata of a file or link itself. Undefined if there is none. */
  async #stat(path: string, options: FileOptions): Promise<FileInfo | undefined> {
    try {
      return await this.stat(path, { ...options, followSymlink: false });
    } catch (error) {
      if (BerthError.is(error, "FILE_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  async *#download(
    path: Path,
    options: FileOptions & { readonly offset?: number },
  ): AsyncGenerator<Uint8Array> {
    const { signal } = options;
    let { offset = 0 } = options;
    let known: FileMessage | undefined;
    let lost: Pauses | undefined;
    for (;;) {
      const request = { ...this.#named(path, options), offset: BigInt(offset) };
      try {
        const answers = this.#connection.stream(
          (settings) => this.#connection.files.downloadFile(request, settings),
          signal,
        );
        for await (const { part } of answers) {
          if (part.case === "header") known = unchanged(known, part.value.file, path, offset);
          else if (part.case === "chunk") {
            lost = undefined;
            offset += part.value.length;
            yield part.value;
          }
        }
        return;
      } catch (error) {
        if (!this.#connection.mayContinue(error)) throw error;
        lost ??= new Pauses(this.#connection.retryForMs);
        await lost.wait(error, signal);
      }
    }
  }

  #named(path: Path, { user = "" }: FileOptions) {
    return { ...this.#sandbox, ...pathField(path), user };
  }

  #file(given: Path, file: FileMessage | undefined): FileInfo {
    const path = withoutSlashes(given);
    return typeof path === "string"
      ? fileInfo(path, content(path), file)
      : fileInfo(new TextDecoder().decode(path), path, file);
  }
}

/** The path of a file without the slashes at its end, which name the same file: "dir/" is "dir". */
function withoutSlashes<Given extends Path>(path: Given): Given {
  let end = path.length;
  while (end > 1 && (path[end - 1] === "/" || path[end - 1] === SLASH)) end--;
  return path.slice(0, end) as Given;
}

function unchanged(
  before: FileMessage | undefined,
  now: FileMessage | undefined,
  path: Path,
  offset: number,
) {
  const same =
    before?.sizeBytes === now?.sizeBytes &&
    before?.modifyTime?.seconds === now?.modifyTime?.seconds &&
    before?.modifyTime?.nanos === now?.modifyTime?.nanos;
  if (before === undefined || same) return now;
  const name = typeof path === "string" ? path : new TextDecoder().decode(path);
  throw new BerthError(
    `"${name}" changed while the connection was broken, after ${offset} bytes. Download it again.`,
    // Must not be mistaken for a broken connection.
    { code: "FAILED_PRECONDITION" },
  );
}

function sizeOf(source: Source): { sizeBytes?: bigint } {
  if (typeof source === "string") return {};
  if (source instanceof Uint8Array) return { sizeBytes: BigInt(source.length) };
  return source instanceof Blob ? { sizeBytes: BigInt(source.size) } : {};
}
