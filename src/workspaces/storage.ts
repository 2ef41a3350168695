import type { ByteString } from "../base/byte-string.ts";
import type { EngineMount, MountPlace } from "../engine/port.ts";
import type { Quota, WorkspaceName, WorkspacePlace } from "./workspace.ts";

/**
 * Where workspaces are kept: directories of the host ({@link HostStorage}), or volumes of the engine
 * ({@link VolumeStorage}). Sandboxes write into them at any time. What is known of a workspace is in the store alone.
 *
 * Every method fails with `NO_SPACE` where the storage or the quota is full, and with `WORKSPACE_BROKEN` where a
 * workspace is not what it should be, with what to do.
 */
export interface WorkspaceStorage {
  /** Whether sandboxes with a workspace have what their owner's sandboxes share, at `/shared`. */
  readonly sharing: boolean;
  /** Whether a watch over quotas is of use. */
  readonly hasQuotas: boolean;
  /** Whether it takes so little to measure a workspace that all are measured periodically. */
  readonly measuresOften: boolean;

  /** The quota of a workspace, or of what an owner's sandboxes share. */
  quotaOf(name: WorkspaceName): Quota;
  /** Called once, at start: removes what earlier runs left half done. */
  prepare(): Promise<void>;
  /** Where a person finds a workspace. */
  pathOf(name: WorkspaceName): string;
  /**
   * Makes a workspace where there is none. `mayExist`: one that is there may be ours. `forkOf`: the one that {@link copy}
   * will fill it from.
   */
  make(
    place: WorkspacePlace,
    options: { readonly mayExist: boolean; readonly forkOf?: WorkspacePlace; readonly signal?: AbortSignal },
  ): Promise<void>;
  /** Makes what an owner's sandboxes share where there is none. */
  makeShared(place: WorkspacePlace): Promise<void>;
  /** A mount of a workspace, or of what an owner's sandboxes share. */
  mountOf(place: WorkspacePlace, at: MountPlace): EngineMount;
  /** What is wrong with a workspace; undefined: nothing. */
  problemOf(name: WorkspaceName): Promise<string | undefined>;
  /** As {@link problemOf}, of many. */
  problemsOf(names: readonly WorkspaceName[]): Promise<(string | undefined)[]>;
  /** Removes a workspace and all it holds, however deep and many. Idempotent. */
  discard(name: WorkspaceName): Promise<void>;
  /** Bytes that it takes. */
  measure(place: WorkspacePlace, signal?: AbortSignal): Promise<number>;
  /**
   * After the start: removes everything with a name that `isLeftBehind` accepts, follows no link, and returns how many
   * names it found. Where that takes a machine of its own, it happens when the workspace is measured instead.
   */
  sweep(place: WorkspacePlace, isLeftBehind: (name: string) => boolean, signal: AbortSignal): Promise<number>;
  /** Streams it as a tar, without what `isHidden` accepts. */
  export(
    place: WorkspacePlace,
    isHidden: (name: ByteString) => boolean,
    signal: AbortSignal,
  ): AsyncIterable<Buffer>;
  /**
   * Streams it as a tar of the directory `.` for a comparison: entries in the order of `comparePaths`, hard links as
   * files. Ends where its reader leaves.
   */
  sorted(place: WorkspacePlace, signal: AbortSignal): AsyncGenerator<Buffer>;
  /**
   * Fills a workspace that was just made, and that no sandbox has, with all that another one holds while sandboxes may
   * write to that. Whatever it leaves on a failure, {@link discard} removes.
   * @param options.maxBytes may be passed for a moment.
   * @returns the bytes that the copy takes.
   * @throws `UNSUPPORTED` for paths that are too long; `WORKSPACE_IN_USE` where something takes the source's place meanwhile.
   */
  copy(
    source: WorkspacePlace,
    target: WorkspacePlace,
    options: { readonly maxBytes: number; readonly signal: AbortSignal },
  ): Promise<number>;
  /**
   * Takes a tar, checks it and unpacks it, not into the workspace yet.
   * @throws `ARCHIVE_REJECTED`, and what `options.admit` throws.
   */
  stage(
    place: WorkspacePlace,
    chunks: AsyncIterable<Uint8Array>,
    options: StageOptions,
  ): Promise<StagedImport>;
  /** What is there of an owner beside the workspaces of these ids. At most `limit`. */
  strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]>;
}

/** How an archive is staged. */
export interface StageOptions {
  /** Called with the bytes of the regular files so far, before more is unpacked; may throw to stop. */
  readonly admit: (sizeBytes: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/** An archive that was checked and unpacked beside the workspace, where no sandbox sees it. */
export interface StagedImport {
  /** Entries, directories and links included. */
  readonly entryCount: number;
  /** Bytes of regular files. */
  readonly sizeBytes: number;
  /**
   * Moves it into the workspace: files replace files of the same name, others stay.
   * @param place as it is now.
   * @throws `FILE_KIND` where an entry would take the place of another kind or go through a link; nothing is moved then.
   */
  merge(place: WorkspacePlace): Promise<void>;
  /**
   * Puts it in place of all that is there. No sandbox may use the workspace meanwhile.
   * @param place as it is now.
   * @param record records that another tree counts, which is when it is in place.
   */
  replace(place: WorkspacePlace, record: (tree: number) => void): Promise<void>;
  /** Removes what was not moved, or what was replaced. Idempotent. */
  discard(): Promise<void>;
}

/** Something among workspaces that is nobody's. */
export interface Stray {
  readonly path: string;
  readonly message: string;
}
