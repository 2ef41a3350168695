import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { z } from "zod";
import {
  type DownloadArchiveRequest,
  type DownloadArchiveResponseSchema,
  type DownloadFileRequest,
  type DownloadFileResponseSchema,
  FileService,
  type ListDirectoryRequest,
  type ListDirectoryResponseSchema,
  type MakeDirectoryRequest,
  type MakeDirectoryResponseSchema,
  type MoveFileRequest,
  type MoveFileResponseSchema,
  type ReadFileRequest,
  type ReadFileResponseSchema,
  type RemoveFileRequest,
  type StatFileRequest,
  type StatFileResponseSchema,
  type UploadArchiveHeader,
  UploadArchiveHeaderSchema,
  type UploadArchiveRequest,
  type UploadArchiveResponseSchema,
  type UploadFileHeader,
  UploadFileHeaderSchema,
  type UploadFileRequest,
  type UploadFileResponseSchema,
  type WatchDirectoryRequest,
  type WatchDirectoryResponseSchema,
  type WriteFileRequest,
  type WriteFileResponseSchema,
} from "../../gen/ts/berth/v1/file_pb.js";
import { toBytes, toText } from "../base/byte-string.ts";
import { invalidArgument } from "../base/errors.ts";
import { type MemoryBudget, noMemory } from "../base/memory-budget.ts";
import type { FileManager, FileRequest } from "../files/manager.ts";
import { ownerOf } from "../server/call.ts";
import { messageTooLarge } from "../server/error-conversion.ts";
import type { RequestLog } from "../state/request-log.ts";
import {
  fromWireMode,
  toWireDownloadItem,
  toWireEntry,
  toWireFile,
  toWireWatchItem,
} from "./convert/file.ts";
import { beginUpload, withKeepalive } from "./stream.ts";
import {
  checkText,
  durationToMs,
  filePath,
  integer,
  optionalInteger,
  requestKey,
  sandboxName,
} from "./validate/fields.ts";
import { decodePageToken, encodePageToken, pageSize } from "./validate/page.ts";

export interface FileHandlerParts {
  readonly files: FileManager;
  readonly requests: RequestLog;
  /** Limits what is read until it is sent. */
  readonly memory: MemoryBudget;
  readonly keepaliveMs: number;
}

/** How many bytes of data `ReadFile` and `WriteFile` carry in one message. */
const MAX_DATA_BYTES = 8 * 1024 * 1024;
/** Room in a message besides its data, for paths and ids. */
const MARGIN_BYTES = 64 * 1024;

/** Size in JSON, where four characters encode three bytes. */
const MAX_BASE64_BYTES = Math.ceil(MAX_DATA_BYTES / 3) * 4;

/** Request size limits of methods that need a larger one than the default. */
export const FILE_READ_MAX_BYTES: Readonly<Record<string, number>> = {
  [`${FileService.typeName}/${FileService.method.writeFile.name}`]: MAX_BASE64_BYTES + MARGIN_BYTES,
};

const DEFAULT_DIRECTORY_MODE = 0o755;
const DEFAULT_INTERVAL_MS = 1_000;
const MIN_INTERVAL_MS = 100;
const MAX_INTERVAL_MS = 3_600_000;

/** The handlers of `berth.v1.FileService`. They validate, convert and delegate. */
export class FileHandler implements ServiceImpl<typeof FileService> {
  readonly #parts: FileHandlerParts;

  constructor(parts: FileHandlerParts) {
    this.#parts = parts;
  }

  async statFile(
    request: StatFileRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof StatFileResponseSchema>> {
    const stat = { ...pathRequest(request, context), followLink: request.followSymlink };
    const { path, info } = await this.#parts.files.stat(stat, context.signal);
    return { path: toText(path), rawPath: toBytes(path), file: toWireFile(info) };
  }

  async listDirectory(
    request: ListDirectoryRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ListDirectoryResponseSchema>> {
    const after = decodePageToken(request.pageToken, z.string());
    const list = { ...pathRequest(request, context), after, limit: pageSize(request.pageSize) };
    const { entries, more, last } = await this.#parts.files.list(list, context.signal);
    return { entries: entries.map(toWireEntry), nextPageToken: more ? encodePageToken(last) : "" };
  }

  async makeDirectory(
    request: MakeDirectoryRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof MakeDirectoryResponseSchema>> {
    const make = {
      ...pathRequest(request, context),
      mode: fromWireMode(request.mode) ?? DEFAULT_DIRECTORY_MODE,
      createParents: request.createParents,
    };
    const key = requestKey(context, request);
    const info = await this.#parts.requests.run(key, context.signal, (signal) =>
      this.#parts.files.makeDirectory(make, signal),
    );
    return { file: toWireFile(info) };
  }

  async removeFile(request: RemoveFileRequest, context: HandlerContext): Promise<Record<string, never>> {
    const remove = {
      ...pathRequest(request, context),
      recursive: request.recursive,
      allowMissing: request.allowMissing,
    };
    const key = requestKey(context, request);
    await this.#parts.requests.run(key, context.signal, (signal) => this.#parts.files.remove(remove, signal));
    return {};
  }

  async moveFile(
    request: MoveFileRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof MoveFileResponseSchema>> {
    const move = {
      ...fileRequest(request, context),
      source: filePath("source_path", request.sourcePath, request.rawSourcePath),
      target: filePath("target_path", request.targetPath, request.rawTargetPath),
      overwrite: request.overwrite,
      createParents: request.createParents,
    };
    const key = requestKey(context, request);
    const info = await this.#parts.requests.run(key, context.signal, (signal) =>
      this.#parts.files.move(move, signal),
    );
    return { file: toWireFile(info) };
  }

  async readFile(
    request: ReadFileRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ReadFileResponseSchema>> {
    const read = {
      ...pathRequest(request, context),
      offset: integer("offset", request.offset, { min: 0 }),
      limit: optionalInteger("limit", request.limit, { min: 1, max: MAX_DATA_BYTES }) ?? MAX_DATA_BYTES,
    };
    const { data, info, endOfFile } = await this.#parts.files.read(read, context.signal);
    if (!this.#parts.memory.open(ownerOf(context), context.signal).take(data.length)) throw noMemory();
    return { data: data as Uint8Array<ArrayBuffer>, file: toWireFile(info), endOfFile };
  }

  async writeFile(
    request: WriteFileRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof WriteFileResponseSchema>> {
    if (request.data.length > MAX_DATA_BYTES) throw messageTooLarge(MAX_DATA_BYTES);
    const write = {
      ...pathRequest(request, context),
      data: request.data,
      mode: fromWireMode(request.mode),
      append: request.append,
      createParents: request.createParents,
    };
    const key = requestKey(context, request);
    const info = await this.#parts.requests.run(key, context.signal, (signal) =>
      this.#parts.files.write(write, signal),
    );
    return { file: toWireFile(info) };
  }

  async *downloadFile(
    request: DownloadFileRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof DownloadFileResponseSchema>> {
    const offset = integer("offset", request.offset, { min: 0 });
    const items = this.#parts.files.download({ ...pathRequest(request, context), offset }, context.signal);
    for await (const item of items) yield toWireDownloadItem(item);
  }

  async uploadFile(
    messages: AsyncIterable<UploadFileRequest>,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof UploadFileResponseSchema>> {
    const { header, chunks } = await beginUpload<UploadFileHeader>(messages, ({ sizeBytes }) => sizeBytes);
    const size = header.sizeBytes;
    const upload = {
      ...pathRequest(header, context),
      sizeBytes: size === undefined ? undefined : integer("size_bytes", size, { min: 0 }),
      mode: fromWireMode(header.mode),
      createParents: header.createParents,
    };
    const key = requestKey(context, header, UploadFileHeaderSchema);
    const info = await this.#parts.requests.run(
      key,
      context.signal,
      (signal) => this.#parts.files.upload(upload, chunks, signal),
      { needs: "input" },
    );
    return { file: toWireFile(info) };
  }

  async *downloadArchive(
    request: DownloadArchiveRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof DownloadArchiveResponseSchema>> {
    const chunks = this.#parts.files.downloadArchive(pathRequest(request, context), context.signal);
    for await (const chunk of chunks) yield { chunk };
  }

  async uploadArchive(
    messages: AsyncIterable<UploadArchiveRequest>,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof UploadArchiveResponseSchema>> {
    const { header, chunks } = await beginUpload<UploadArchiveHeader>(messages);
    const upload = { ...pathRequest(header, context), createParents: header.createParents };
    const key = requestKey(context, header, UploadArchiveHeaderSchema);
    const { entryCount, sizeBytes } = await this.#parts.requests.run(
      key,
      context.signal,
      (signal) => this.#parts.files.uploadArchive(upload, chunks, signal),
      { needs: "input" },
    );
    return { entryCount: BigInt(entryCount), sizeBytes: BigInt(sizeBytes) };
  }

  async *watchDirectory(
    request: WatchDirectoryRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof WatchDirectoryResponseSchema>> {
    const intervalMs = durationToMs("interval", request.interval) ?? DEFAULT_INTERVAL_MS;
    if (intervalMs < MIN_INTERVAL_MS || intervalMs > MAX_INTERVAL_MS) {
      throw invalidArgument("interval", "must be between 100 ms and 1 h");
    }
    const watch = { ...pathRequest(request, context), recursive: request.recursive, intervalMs };
    const items = this.#parts.files.watch(watch, context.signal);
    let started = false;
    for await (const item of withKeepalive(items, this.#parts.keepaliveMs)) {
      // A caller takes the first message for the start of the watch.
      if (item === undefined && started) yield { item: { case: "keepalive", value: {} } };
      if (item === undefined) continue;
      started = true;
      yield toWireWatchItem(item);
    }
  }
}

/** Fields that all requests have. */
interface WireFileRequest {
  readonly sandboxId: string;
  readonly generation: bigint;
  readonly user: string;
}

function fileRequest(request: WireFileRequest, context: HandlerContext): FileRequest {
  return {
    sandbox: sandboxName(context, request),
    user: checkText("user", request.user, 256) || undefined,
  };
}

function pathRequest(
  request: WireFileRequest & { readonly path: string; readonly rawPath: Uint8Array },
  context: HandlerContext,
) {
  return { ...fileRequest(request, context), path: filePath("path", request.path, request.rawPath) };
}
