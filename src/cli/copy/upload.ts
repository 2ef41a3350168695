import { stat } from "node:fs/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import {
  type FileInfo,
  FileKind,
  type UploadArchiveRequestSchema,
  type UploadFileRequestSchema,
} from "../../../gen/ts/berth/v1/file_pb.js";
import type { ServiceClient } from "../client.ts";
import { reasonOf } from "../failure.ts";
import { type Chunks, feeding, inMessages } from "./chunks.ts";
import { readLocalFile } from "./local-file.ts";
import { type OnLeftOut, packTree } from "./pack.ts";
import { inside, type LocalPlace, nameOf, type SandboxPlace } from "./place.ts";
import type { CopyProgress } from "./progress.ts";

/** What the copies in both directions need. */
export interface CopyParts {
  readonly client: ServiceClient;
  readonly stdin: Chunks;
  /** User to act as in the sandbox; undefined: the sandbox's. */
  readonly user: string | undefined;
  /** Whether to make directories that are missing above the target. */
  readonly parents: boolean;
  readonly progress: CopyProgress;
  readonly onLeftOut: OnLeftOut;
  readonly signal: AbortSignal;
}

/** Copies a file, a tree or stdin into a sandbox. */
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
    // As for any copy, one that is there keeps its own.
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

/** Copies a directory to a path, which is the copy's own. */
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
    // Nothing was unpacked into it. That it stays is no news beside why.
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

/** What stands at a path of a sandbox, links followed; undefined where nothing does. */
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
