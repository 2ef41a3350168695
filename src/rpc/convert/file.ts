import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type DirectoryEntrySchema,
  type DownloadFileResponseSchema,
  type FileInfoSchema,
  type WatchDirectoryResponseSchema,
  FileChangeType as WireChangeType,
  FileKind as WireKind,
} from "../../../gen/ts/berth/v1/file_pb.js";
import { toBytes, toText } from "../../base/byte-string.ts";
import { invalidArgument } from "../../base/errors.ts";
import type { FileInfo, FileKind, NamedFile } from "../../files/file-info.ts";
import type { DownloadItem } from "../../files/read.ts";
import type { ChangeType, WatchItem } from "../../files/watch.ts";
import { msToTimestamp } from "../validate/fields.ts";

const LAST_MODE = 0o7777;

const KINDS: Record<FileKind, WireKind> = {
  REGULAR: WireKind.REGULAR,
  DIRECTORY: WireKind.DIRECTORY,
  SYMLINK: WireKind.SYMLINK,
  FIFO: WireKind.FIFO,
  SOCKET: WireKind.SOCKET,
  CHARACTER_DEVICE: WireKind.CHARACTER_DEVICE,
  BLOCK_DEVICE: WireKind.BLOCK_DEVICE,
};

const CHANGES: Record<ChangeType, WireChangeType> = {
  CREATED: WireChangeType.CREATED,
  MODIFIED: WireChangeType.MODIFIED,
  REMOVED: WireChangeType.REMOVED,
};

export function fromWireMode(mode: number | undefined): number | undefined {
  if (mode !== undefined && mode > LAST_MODE) {
    throw invalidArgument(
      "mode",
      `${mode.toString(8)} (octal) is not between 0 and ${LAST_MODE.toString(8)}`,
    );
  }
  return mode;
}

export function toWireFile(info: Omit<FileInfo, "inode">): MessageInitShape<typeof FileInfoSchema> {
  const { seconds, nanos } = info.modifyTime;
  return {
    kind: KINDS[info.kind],
    sizeBytes: BigInt(info.sizeBytes),
    mode: info.mode,
    uid: info.uid,
    gid: info.gid,
    modifyTime: { seconds: BigInt(seconds), nanos },
    linkTarget: toText(info.linkTarget),
    rawLinkTarget: toBytes(info.linkTarget),
  };
}

export function toWireEntry({ name, info }: NamedFile): MessageInitShape<typeof DirectoryEntrySchema> {
  return { name: toText(name), rawName: toBytes(name), file: toWireFile(info) };
}

/** One message of a download. */
export function toWireDownloadItem(item: DownloadItem): MessageInitShape<typeof DownloadFileResponseSchema> {
  if (item.type === "header") {
    const header = { file: toWireFile(item.info), offset: BigInt(item.offset) };
    return { part: { case: "header", value: header } };
  }
  return { part: { case: "chunk", value: item.data as Uint8Array<ArrayBuffer> } };
}

export function toWireWatchItem(item: WatchItem): MessageInitShape<typeof WatchDirectoryResponseSchema> {
  if (item.type === "started") {
    return { item: { case: "started", value: { entryCount: BigInt(item.entryCount) } } };
  }
  const { type, path, info, timeMs } = item;
  return {
    item: {
      case: "change",
      value: {
        type: CHANGES[type],
        path: toText(path),
        rawPath: toBytes(path),
        file: info && toWireFile(info),
        time: msToTimestamp(timeMs),
      },
    },
  };
}
