import type { Timestamp } from "./wire.ts";

/** The messages of the file service that tests read, in the form of @grpc/proto-loader. */

export interface FileInfo {
  readonly kind: string;
  readonly size_bytes: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modify_time: Timestamp;
  readonly link_target: string;
  readonly raw_link_target: Buffer;
}

export interface FileAnswer {
  readonly file: FileInfo;
}

export interface DirectoryEntry extends FileAnswer {
  readonly name: string;
  readonly raw_name: Buffer;
}

export interface FileChange {
  readonly type: string;
  readonly path: string;
  readonly raw_path: Buffer;
  readonly file: FileInfo | null;
  readonly time: Timestamp;
}

/** Responses of the unary methods. */
export interface FileAnswers {
  "FileService/StatFile": FileAnswer & { readonly path: string; readonly raw_path: Buffer };
  "FileService/ListDirectory": {
    readonly entries: readonly DirectoryEntry[];
    readonly next_page_token: string;
  };
  "FileService/MakeDirectory": FileAnswer;
  "FileService/RemoveFile": Record<string, never>;
  "FileService/MoveFile": FileAnswer;
  "FileService/ReadFile": FileAnswer & { readonly data: Buffer; readonly end_of_file: boolean };
  "FileService/WriteFile": FileAnswer;
}

/** Items of the methods with a streaming response. */
export interface FileStreamItems {
  "FileService/DownloadFile": {
    readonly part: "header" | "chunk";
    readonly header?: FileAnswer & { readonly offset: number };
    readonly chunk?: Buffer;
  };
  "FileService/DownloadArchive": { readonly chunk: Buffer };
  "FileService/WatchDirectory": {
    readonly item: "started" | "change" | "keepalive";
    readonly started?: { readonly entry_count: number };
    readonly change?: FileChange;
  };
}

/** Responses of the methods that take a stream. */
export interface UploadAnswers {
  "FileService/UploadFile": FileAnswer;
  "FileService/UploadArchive": { readonly entry_count: number; readonly size_bytes: number };
}
