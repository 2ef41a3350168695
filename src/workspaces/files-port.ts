import type { Quota, WorkspaceName } from "./workspace.ts";

/** The directory of one workspace, or what an owner's sandboxes share ({@link sharedOf}). */
export interface WorkspacePlace extends WorkspaceName {
  /** {@link WorkspaceRecord.number}. */
  readonly number: number;
}

/** An archive that was checked and unpacked beside the workspace, where no sandbox sees it. */
export interface StagedImport {
  /** Entries, directories and links included. */
  readonly entryCount: number;
  /** Bytes of regular files. */
  readonly sizeBytes: number;
  /**
   * Moves it into the workspace: files replace files of the same name, others stay.
   * @throws `FILE_KIND` where an entry would take the place of another kind or go through a link; nothing is moved then.
   */
  merge(): Promise<void>;
  /** Puts it in place of all that is there. No sandbox may use the workspace meanwhile. */
  replace(): Promise<void>;
  /** Removes what was not moved. Idempotent. */
  discard(): Promise<void>;
}

/** Something in a root that is nobody's workspace. */
export interface Stray {
  readonly path: string;
  readonly message: string;
}

/**
 * The directories of workspaces. Sandboxes write into them at any time, so
 * nothing here follows a path inside one as the service.
 *
 * Every method fails with `NO_SPACE` where the disk or the quota is full, and
 * with `WORKSPACE_BROKEN` where the roots or a directory are not what they
 * should be, with what to do.
 */
export interface WorkspaceFiles {
  /** Whether anything has a quota. */
  readonly hasQuotas: boolean;
  /** The quota of a workspace, or of a shared directory. */
  quotaOf(name: WorkspaceName): Quota;
  /**
   * Makes the roots, removes what earlier runs left half done, and finds out how quotas can be held.
   * @throws `INVALID_ARGUMENT` for a root that the host's other users may enter.
   */
  prepare(): Promise<void>;
  /** Absolute path of a workspace's directory. */
  pathOf(name: WorkspaceName): string;
  /** Absolute path of an owner's shared directory, which is made where there is none. */
  sharedPathOf(place: WorkspacePlace): Promise<string>;
  /** Makes a workspace's directory where there is none. `mayExist`: one that is there may be ours. */
  make(place: WorkspacePlace, options: { readonly mayExist: boolean }): Promise<void>;
  /** What is wrong with a workspace's directory; undefined: nothing. */
  problemOf(name: WorkspaceName): Promise<string | undefined>;
  /** Removes a workspace's directory and all it holds, however deep and many. Idempotent. */
  discard(name: WorkspaceName): Promise<void>;
  /** Bytes on the disk, of a workspace or a shared directory. */
  measure(name: WorkspaceName, signal?: AbortSignal): Promise<number>;
  /**
   * Removes what bears a name that `isLeftBehind` knows from a directory that
   * {@link pathOf} or {@link sharedPathOf} gave; no link is followed. Returns how many names were found.
   */
  sweep(directory: string, isLeftBehind: (name: string) => boolean, signal: AbortSignal): Promise<number>;
  /** Streams the directory as a tar. */
  export(name: WorkspaceName, signal: AbortSignal): AsyncIterable<Buffer>;
  /** Takes a tar, checks it and unpacks it, not into the workspace yet. @throws `ARCHIVE_REJECTED`. */
  stage(place: WorkspacePlace, chunks: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<StagedImport>;
  /** What lies in an owner's root beside the workspaces of these ids. At most `limit`. */
  strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]>;
}
