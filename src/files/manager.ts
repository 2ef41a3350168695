import type { ByteString } from "../base/byte-string.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { MemoryBudget } from "../base/memory-budget.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { ProcessControl } from "../processes/control.ts";
import type { JobRunner } from "../processes/shell/job.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import { downloadArchive } from "./download-archive.ts";
import {
  type MakeDirectoryOptions,
  type MoveOptions,
  makeDirectory,
  moveFile,
  type RemoveOptions,
  realPath,
  removeFile,
  statFile,
} from "./entries.ts";
import type { FileInfo } from "./file-info.ts";
import { type DirectoryPage, type ListParts, listDirectory } from "./list.ts";
import { Listings } from "./listings.ts";
import { Operation } from "./operation.ts";
import type { RequestedPath } from "./path.ts";
import { type DownloadItem, downloadFile, type FilePart, readFile } from "./read.ts";
import type { TemporaryNames } from "./temporary-names.ts";
import { type UnpackedArchive, uploadArchive } from "./upload-archive.ts";
import { type WatchItem, type WatchOptions, watchDirectory } from "./watch.ts";
import { appendFile, uploadFile, type WriteOptions, writeFile } from "./write.ts";

/** Names the sandbox, and the user to act as. */
export interface FileRequest {
  readonly sandbox: SandboxName;
  /** Undefined: the sandbox's user. */
  readonly user: string | undefined;
}

/** A request about one path. */
export interface PathRequest extends FileRequest {
  readonly path: RequestedPath;
}

interface FileManagerParts {
  readonly sandboxes: SandboxManager;
  readonly runner: JobRunner;
  readonly control: ProcessControl;
  readonly names: TemporaryNames;
  /** Limits what operations gather. */
  readonly memory: MemoryBudget;
  /** Limits what is read ahead of callers, who may be slow. Default: to 256 MiB. */
  readonly ahead?: MemoryBudget;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Of this each stream takes a few MiB, unless there are many. */
const AHEAD_BYTES = 256 * 1024 * 1024;

interface FileManagerSettings {
  /** Limit of concurrent file operations in one sandbox. */
  readonly maxOperationsPerSandbox: number;
}

/**
 * The files of sandboxes. Scripts inside the sandbox do everything, with the permissions of the request's user and with
 * the shell and tools of the image. Paths of a sandbox are never used on the host.
 *
 * Every method holds a lease on the sandbox while it works, ends soon after its signal is aborted, and may throw, in
 * addition to the errors that it lists: `INVALID_ARGUMENT` for a bad path or user; the errors of
 * {@link SandboxManager.acquire}; `FILE_NOT_FOUND`, `FILE_KIND` and `FILE_PERMISSION` for the path to the file;
 * `UNSUPPORTED` for a tool that the image lacks; `TOO_MANY_OPERATIONS`, also if the owner's calls have gathered as much as
 * there is memory for; `SANDBOX_DELETED`, `SANDBOX_TERMINATED` and `ENGINE_UNAVAILABLE`; `DEADLINE_EXCEEDED` if there was
 * no progress for the sandbox's command timeout.
 */
export class FileManager {
  readonly #settings: FileManagerSettings;
  readonly #parts: FileManagerParts;
  /** Number of running operations, by the sandbox's ref. */
  readonly #atWork = new Map<string, number>();
  readonly #lists: ListParts;
  readonly #ahead: MemoryBudget;

  constructor(settings: FileManagerSettings, parts: FileManagerParts) {
    this.#settings = settings;
    this.#parts = parts;
    this.#ahead = parts.ahead ?? new MemoryBudget(AHEAD_BYTES);
    this.#lists = { listings: new Listings(parts.clock), turns: new TurnShare() };
  }

  /** Whether a path leads to one of Berth's temporary files, or into a temporary directory. */
  isTemporary(path: string): boolean {
    return this.#parts.names.hides(path);
  }

  /** Returns the attributes of a file, and its absolute path. @throws `FILE_NOT_FOUND`. */
  stat(
    request: PathRequest & { readonly followLink: boolean },
    signal: AbortSignal,
  ): Promise<{ path: ByteString; info: FileInfo }> {
    return this.#run(request, signal, async (op) => {
      const path = op.path(request.path);
      return { path, info: await statFile(op, path, request.followLink) };
    });
  }

  /** Resolves all symbolic links in a path. The part that does not exist yet is kept as it is. */
  realPath(request: PathRequest, signal: AbortSignal): Promise<ByteString> {
    return this.#run(request, signal, (op) => realPath(op, op.path(request.path)));
  }

  /** Lists entries of a directory after a name, in byte order. @throws `FILE_NOT_FOUND`, `FILE_KIND`. */
  list(
    request: PathRequest & { readonly after: ByteString | undefined; readonly limit: number },
    signal: AbortSignal,
  ): Promise<DirectoryPage> {
    return this.#run(request, signal, (op) => listDirectory(op, op.path(request.path), request, this.#lists));
  }

  /** @throws `FILE_EXISTS`, `FILE_NOT_FOUND`, `NO_SPACE`. */
  makeDirectory(request: PathRequest & MakeDirectoryOptions, signal: AbortSignal): Promise<FileInfo> {
    return this.#run(request, signal, (op) => makeDirectory(op, op.path(request.path), request));
  }

  /** @throws `FILE_NOT_FOUND`, `DIRECTORY_NOT_EMPTY`, `INVALID_ARGUMENT` for the root. */
  remove(request: PathRequest & RemoveOptions, signal: AbortSignal): Promise<void> {
    return this.#run(request, signal, (op) =>
      removeFile(op, op.entry(request.path), request, request.path.field),
    );
  }

  /** @throws `FILE_NOT_FOUND`, `FILE_EXISTS`, `FILE_KIND`, `DIRECTORY_NOT_EMPTY`, `NO_SPACE`, `INVALID_ARGUMENT`. */
  move(
    request: FileRequest & MoveOptions & { readonly source: RequestedPath; readonly target: RequestedPath },
    signal: AbortSignal,
  ): Promise<FileInfo> {
    const { source, target } = request;
    return this.#run(request, signal, (op) =>
      moveFile(op, op.entry(source), op.path(target), request, target.field),
    );
  }

  /** Reads up to `limit` bytes of a regular file. @throws `FILE_NOT_FOUND`, `FILE_KIND`, `OFFSET_OUT_OF_RANGE`. */
  read(
    request: PathRequest & { readonly offset: number; readonly limit: number },
    signal: AbortSignal,
  ): Promise<FilePart> {
    return this.#run(request, signal, (op) =>
      readFile(op, op.path(request.path), request.offset, request.limit),
    );
  }

  /** Replaces the content of a file atomically, or appends to it. @throws `FILE_NOT_FOUND`, `FILE_KIND`, `NO_SPACE`. */
  write(
    request: PathRequest & WriteOptions & { readonly data: Uint8Array; readonly append: boolean },
    signal: AbortSignal,
  ): Promise<FileInfo> {
    const write = request.append ? appendFile : writeFile;
    return this.#run(request, signal, (op) => write(op, op.path(request.path), request.data, request));
  }

  /** Streams a regular file, reading at most a few MiB ahead of the caller. @throws as {@link read}. */
  download(
    request: PathRequest & { readonly offset: number },
    signal: AbortSignal,
  ): AsyncGenerator<DownloadItem> {
    return this.#stream(request, signal, (op) => downloadFile(op, op.path(request.path), request.offset));
  }

  /**
   * Replaces the content of a file with a stream, atomically at its end.
   * @param chunks the content; if it fails, the old content is kept
   * @throws as {@link write}, `INVALID_ARGUMENT` if its size is not `sizeBytes`, and errors of `chunks`.
   */
  upload(
    request: PathRequest & WriteOptions & { readonly sizeBytes: number | undefined },
    chunks: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<FileInfo> {
    return this.#run(request, signal, (op) =>
      uploadFile(op, op.path(request.path), chunks, request.sizeBytes, request),
    );
  }

  /**
   * Streams a directory, or one file, as a tar, which is complete only if the stream ends without an error. @throws
   * `FILE_NOT_FOUND`, `FILE_KIND`.
   */
  downloadArchive(request: PathRequest, signal: AbortSignal): AsyncGenerator<Buffer> {
    return this.#stream(request, signal, (op) => downloadArchive(op, op.path(request.path)));
  }

  /**
   * Unpacks a tar into a directory, all of it or nothing.
   * @param chunks the tar; if it fails, nothing is unpacked
   * @throws `ARCHIVE_REJECTED`, `FILE_NOT_FOUND`, `FILE_KIND`, `NO_SPACE`, and errors of `chunks`.
   */
  uploadArchive(
    request: PathRequest & { readonly createParents: boolean },
    chunks: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<UnpackedArchive> {
    return this.#run(request, signal, (op) =>
      uploadArchive(op, op.path(request.path), chunks, request.createParents),
    );
  }

  /**
   * Reports changes in a directory until the signal is aborted, which gives back its memory. @throws `FILE_NOT_FOUND`,
   * `FILE_KIND`, `UNSUPPORTED`.
   */
  watch(request: PathRequest & WatchOptions, signal: AbortSignal): AsyncGenerator<WatchItem> {
    const { clock } = this.#parts;
    const { turns } = this.#lists;
    return this.#stream(request, signal, (op) =>
      watchDirectory(op, op.path(request.path), request, { clock, turns, memory: op.memory }),
    );
  }

  async #run<T>(request: FileRequest, signal: AbortSignal, work: (op: Operation) => Promise<T>): Promise<T> {
    const op = this.#begin(request, signal);
    try {
      return await work(op);
    } catch (error) {
      throw await op.causeOf(error);
    } finally {
      await op.close();
    }
  }

  async *#stream<T>(
    request: FileRequest,
    signal: AbortSignal,
    work: (op: Operation) => AsyncGenerator<T>,
  ): AsyncGenerator<T> {
    const op = this.#begin(request, signal);
    // A generator does not notice that its reader has left.
    op.signal.addEventListener("abort", () => void op.close(), { once: true });
    try {
      yield* work(op);
    } catch (error) {
      throw await op.causeOf(error);
    } finally {
      await op.close();
    }
  }

  #begin(request: FileRequest, signal: AbortSignal): Operation {
    const lease = this.#parts.sandboxes.acquire(request.sandbox);
    const { ref, user } = lease.sandbox;
    const atWork = this.#atWork.get(ref) ?? 0;
    const limit = this.#settings.maxOperationsPerSandbox;
    if (atWork >= limit) {
      lease.release();
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The sandbox has reached its limit of ${limit} concurrent file operations. Wait for one to end.`,
        { metadata: { limit: String(limit) } },
      );
    }
    this.#atWork.set(ref, atWork + 1);
    const onClose = (): void => {
      const left = (this.#atWork.get(ref) ?? 1) - 1;
      if (left === 0) this.#atWork.delete(ref);
      else this.#atWork.set(ref, left);
    };
    const memory = this.#parts.memory.open(request.sandbox.owner, signal);
    const ahead = this.#ahead.open(request.sandbox.owner, signal);
    const limits = { memory, ahead, signal };
    return new Operation({ ...this.#parts, ...limits, lease, user: request.user ?? user, onClose });
  }
}
