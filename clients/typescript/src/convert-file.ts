/** Between the messages of files and what users see. */
import { date, present } from "./convert.ts";
import { nameOf } from "./enum-name.ts";
import type { FileChange, FileInfo, WorkspaceChange } from "./types.ts";
import {
  type FileChange as FileChangeMessage,
  FileChangeType,
  FileKind,
  type FileInfo as FileMessage,
} from "./v1/file_pb.js";
import {
  type WorkspaceChange as WorkspaceChangeMessage,
  WorkspaceChangeType,
  WorkspaceDifference,
} from "./v1/workspace_pb.js";

export function fileInfo(name: string, rawName: Uint8Array, message: FileMessage | undefined): FileInfo {
  const file = present(message);
  return {
    name,
    rawName,
    kind: nameOf(FileKind, file.kind),
    size: Number(file.sizeBytes),
    mode: file.mode,
    uid: file.uid,
    gid: file.gid,
    modifyTime: date(file.modifyTime),
    linkTarget: file.linkTarget,
  };
}

export function fileChange({ type, path, rawPath, file, time }: FileChangeMessage): FileChange {
  return {
    type: nameOf(FileChangeType, type),
    path,
    rawPath,
    file: file && fileInfo(path, rawPath, file),
    time: date(time),
  };
}

export function workspaceChange(message: WorkspaceChangeMessage): WorkspaceChange {
  const { type, path, rawPath, differences, baseFile, file } = message;
  return {
    type: nameOf(WorkspaceChangeType, type),
    path,
    rawPath,
    differences: differences.map((each) => nameOf(WorkspaceDifference, each)),
    baseFile: baseFile && fileInfo(path, rawPath, baseFile),
    file: file && fileInfo(path, rawPath, file),
  };
}
