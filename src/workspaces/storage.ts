import type { ByteString } from "../base/byte-string.ts";
import type { EngineMount, MountPlace } from "../engine/port.ts";
import type { Quota, WorkspaceName, WorkspacePlace } from "./workspace.ts";

/**
 * Where workspaces are kept: directories of the host ({@link WorkspaceDirectories}), or volumes of the engine ({@link
 * VolumeStorage}). Sandboxes write into them at any time. Records about workspaces are only in the store.
 *
 * Every method throws `NO_SPACE` if the storage or the quota is full, and `WORKSPACE_BROKEN`, with what to do, if a
 * workspace is not as it should be.
 */
export interface WorkspaceStorage {
  /** Whether sandboxes with a workspace have the owner's shared directory at `/shared`. */
  readonly sharing: boolean;
  /** Whether watching quotas is useful. */
  readonly hasQuotas: boolean;
  /** Whether measuring is so cheap that all workspaces are measured periodically. */
  readonly measuresOften: boolean;

  /** The quota of a workspace or of an owner's shared directory. */
  quotaOf(name: WorkspaceName): Quota;
  /** Called once, at start. Removes what earlier runs left incomplete. */
  prepare(): Promise<void>;
  /** Where people find a workspace. */
  pathOf(name: WorkspaceName): string;
  /**
   * Call it before a workspace is recorded: once it is, what is in its place is Berth's own.
   * @throws `WORKSPACE_BROKEN` if something is there.
   */
  assertFree(name: WorkspaceName): Promise<void>;
  /**
   * Creates a workspace, unless an earlier run of the service did. `forkOf`: the workspace from which {@link copy} will
   * fill it.
   */
  make(place: WorkspacePlace, options?: MakeOptions): Promise<void>;
  /** Creates an owner's shared directory unless it exists. */
  makeShared(place: WorkspacePlace): Promise<void>;
  /** A mount of a workspace or of an owner's shared directory. */
  mountOf(place: WorkspacePlace, at: MountPlace): EngineMount;
  /** What is wrong with a workspace. Undefined: nothing. */
  problemOf(name: WorkspaceName): Promise<string | undefined>;
  /** {@link problemOf} for many workspaces. */
  problemsOf(names: readonly WorkspaceName[]): Promise<(string | undefined)[]>;
  /** Removes a workspace with all its content, however deep or large. Idempotent. */
  discard(name: WorkspaceName): Promise<void>;
  /** The disk space that it takes, in bytes. */
  measure(place: WorkspacePlace, signal?: AbortSignal): Promise<number>;
  /**
   * After the start: puts it under the current quota, and removes every entry whose name `isLeftBehind` accepts, without
   * following links. Returns how many names it found. If the storage would need a pod for that, it does it when the
   * workspace is measured instead.
   */
  sweep(place: WorkspacePlace, isLeftBehind: (name: string) => boolean, signal: AbortSignal): Promise<number>;
  /** Streams it as a tar, without entries that `isHidden` accepts. */
  export(
    place: WorkspacePlace,
    isHidden: (name: ByteString) => boolean,
    signal: AbortSignal,
  ): AsyncIterable<Buffer>;
  /**
   * Streams it as a tar of the directory `.` for a comparison: entries in the order of `comparePaths`, hard links as
   * files. Ends if its reader leaves.
   */
  sorted(place: WorkspacePlace, signal: AbortSignal): AsyncGenerator<Buffer>;
  /**
   * Fills a new workspace, which no sandbox has mounted, with the content of another one. Sandboxes may write to the
   * source meanwhile. After a failure, {@link discard} removes what this left behind.
   * @param options.maxBytes may be exceeded for a moment.
   * @returns the size of the copy in bytes.
   * @throws `UNSUPPORTED` if paths are too long; `WORKSPACE_IN_USE` if the source is replaced meanwhile.
   */
  copy(
    source: WorkspacePlace,
    target: WorkspacePlace,
    options: { readonly maxBytes: number; readonly signal: AbortSignal },
  ): Promise<number>;
  /**
   * Receives a tar, checks it and unpacks it, but not into the workspace yet.
   * @throws `ARCHIVE_REJECTED`, `TOO_MANY_OPERATIONS` if there is no memory for its names, and what `options.admit` throws.
   */
  stage(
    place: WorkspacePlace,
    chunks: AsyncIterable<Uint8Array>,
    options: StageOptions,
  ): Promise<StagedImport>;
  /**
   * What there is of an owner besides the workspaces with these ids. At most `limit` entries.
   * @param known is read after what there is, so that a workspace that is created meanwhile is known.
   */
  strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]>;
}

export interface MakeOptions {
  readonly forkOf?: WorkspacePlace;
  readonly signal?: AbortSignal;
}

export interface StageOptions {
  /** Called with the total size of the regular files so far, before more is unpacked. Throws to stop the import. */
  readonly admit: (sizeBytes: number) => Promise<void>;
  /** Called with the memory that further names take. Returns whether there is room for that. */
  readonly take: (bytes: number) => boolean;
  readonly signal: AbortSignal;
}

/** A checked archive, unpacked outside the workspace, where no sandbox sees it. */
export interface StagedImport {
  /** Entries, including directories and links. */
  readonly entryCount: number;
  /** Total size of the regular files. */
  readonly sizeBytes: number;
  /**
   * Moves it into the workspace. Files replace files of the same name; other files stay.
   * @param place as it is now.
   * @throws `FILE_KIND` if an entry would replace something of another kind or go through a link. Then nothing is
   *   moved.
   */
  merge(place: WorkspacePlace): Promise<void>;
  /**
   * Replaces the whole content. No sandbox may use the workspace meanwhile.
   * @param place as it is now.
   * @param record called once the new tree is in place. Records that it is the current one.
   */
  replace(place: WorkspacePlace, record: (tree: number) => void): Promise<void>;
  /** Removes what was not moved, or what was replaced. Idempotent. */
  discard(): Promise<void>;
}

/** An entry among workspaces that belongs to nobody. */
export interface Stray {
  readonly path: string;
  readonly message: string;
}
