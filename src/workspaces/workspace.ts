import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";

/** A workspace is its owner's: two owners may use the same id and never hear of each other. */
export interface WorkspaceName {
  readonly owner: string;
  /** The caller's own: 1-256 bytes without control characters, never a path. */
  readonly workspaceId: string;
}

/**
 * The name of an owner's shared directory, `/shared`. It has a number, a size and
 * a quota as workspaces have, so it has the one id that no caller can give.
 */
export function sharedOf(owner: string): WorkspaceName {
  return { owner, workspaceId: "" };
}

/** Whether it is an owner's shared directory, and no workspace. */
export function isShared({ workspaceId }: WorkspaceName): boolean {
  return workspaceId === "";
}

/** The directory of one workspace, or what an owner's sandboxes share ({@link sharedOf}). */
export interface WorkspacePlace extends WorkspaceName {
  /** Of its `WorkspaceRecord`. */
  readonly number: number;
  /** Of its `WorkspaceRecord`. */
  readonly tree: number;
}

/** How a quota is enforced. */
export type QuotaEnforcement = "NONE" | "ENFORCED" | "WATCHED";

/** The limit of a directory. */
export interface Quota {
  /** Undefined: no bound. */
  readonly quotaBytes: number | undefined;
  readonly quotaEnforcement: QuotaEnforcement;
}

/** A workspace as it was at one moment: what clients see. Times are wall milliseconds. */
export interface WorkspaceView extends WorkspaceName, Quota {
  /** Absolute path of its directory on the server's machine, or its claim: the namespace and the name. */
  readonly path: string;
  /** In byte order. */
  readonly traceRefs: readonly string[];
  /** Its live sandbox; empty where it has none. */
  readonly sandboxId: string;
  /** Bytes on the disk as last measured; undefined before the first measurement. */
  readonly sizeBytes: number | undefined;
  readonly createTimeMs: number;
  readonly updateTimeMs: number;
  /** Whether sandboxes with it have what the owner's sandboxes share. */
  readonly hasShared: boolean;
}

/** Whether a workspace took more than its quota when it was measured last. */
export function isOverQuota({
  sizeBytes = 0,
  quotaBytes,
}: Pick<WorkspaceView, "sizeBytes" | "quotaBytes">): boolean {
  return quotaBytes !== undefined && sizeBytes > quotaBytes;
}

/** Something in the place of a workspace that cannot be used as one. */
export interface BrokenWorkspace {
  /** Empty where nothing is known of it. */
  readonly workspaceId: string;
  readonly path: string;
  /** What is wrong and what to do. */
  readonly message: string;
}

/** Names one workspace among those of all owners, for locks and maps. */
export function workspaceKey({ owner, workspaceId }: WorkspaceName): string {
  return compositeKey(owner, workspaceId);
}

/** The error for an unknown workspace. */
export function workspaceNotFound({ workspaceId }: WorkspaceName): BerthError {
  return new BerthError("WORKSPACE_NOT_FOUND", `There is no workspace ${JSON.stringify(workspaceId)}.`, {
    metadata: { workspace_id: workspaceId },
  });
}

/** The error for a workspace whose directory is not what it should be. `problem` also says what to do. */
export function workspaceBroken({ workspaceId }: WorkspaceName, problem: string): BerthError {
  return new BerthError(
    "WORKSPACE_BROKEN",
    `The workspace ${JSON.stringify(workspaceId)} cannot be used: ${problem}`,
    { metadata: { workspace_id: workspaceId } },
  );
}

/** The error for a workspace whose content was replaced while it was, for instance, "copied". */
export function contentReplaced({ workspaceId }: WorkspaceName, done: string): BerthError {
  return new BerthError(
    "WORKSPACE_IN_USE",
    `The content of the workspace ${JSON.stringify(workspaceId)} was replaced while it was ${done}. Try again.`,
    { metadata: { workspace_id: workspaceId }, retryAfterMs: 1_000 },
  );
}
