import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";

/** A workspace belongs to its owner: two owners may use the same id independently. */
export interface WorkspaceName {
  readonly owner: string;
  /** Chosen by the caller: 1-256 bytes without control characters, never a path. */
  readonly workspaceId: string;
}

/**
 * The name of an owner's shared directory, `/shared`. It has a number, a size and a quota like a workspace, so it has
 * an id too: the empty one, which no caller can use.
 */
export function sharedOf(owner: string): WorkspaceName {
  return { owner, workspaceId: "" };
}

/** Whether it is an owner's shared directory instead of a workspace. */
export function isShared({ workspaceId }: WorkspaceName): boolean {
  return workspaceId === "";
}

/** A workspace, or an owner's shared directory ({@link sharedOf}). */
export interface WorkspacePlace extends WorkspaceName {
  /** See `WorkspaceRecord`. */
  readonly number: number;
  /** See `WorkspaceRecord`. */
  readonly tree: number;
}

/** How a quota is enforced. */
export type QuotaEnforcement = "NONE" | "ENFORCED" | "WATCHED";

/** The size limit of a directory. */
export interface Quota {
  /** Undefined: no limit. */
  readonly quotaBytes: number | undefined;
  readonly quotaEnforcement: QuotaEnforcement;
}

/**
 * A snapshot of a workspace, as clients see it. Times are wall milliseconds. Its references are not part of it: there
 * may be megabytes of them, and Berth keeps the answers of requests.
 */
export interface WorkspaceView extends WorkspaceName, Quota {
  /** Absolute path of its directory on the server's machine, or the namespace and name of its claim. */
  readonly path: string;
  /** Its live sandbox. Empty if there is none. */
  readonly sandboxId: string;
  /** The last measured disk space, in bytes. Undefined before the first measurement. */
  readonly sizeBytes: number | undefined;
  readonly createTimeMs: number;
  readonly updateTimeMs: number;
  /** Whether sandboxes with it have the owner's shared directory. */
  readonly hasShared: boolean;
}

/** Whether a workspace exceeded its quota at the last measurement. */
export function isOverQuota({
  sizeBytes = 0,
  quotaBytes,
}: Pick<WorkspaceView, "sizeBytes" | "quotaBytes">): boolean {
  return quotaBytes !== undefined && sizeBytes > quotaBytes;
}

/** Something in the place of a workspace that cannot be used as one. */
export interface BrokenWorkspace {
  /** Empty if it is not known. */
  readonly workspaceId: string;
  readonly path: string;
  /** What is wrong, and what to do. */
  readonly message: string;
}

/** Identifies a workspace among those of all owners, for locks and maps. */
export function workspaceKey({ owner, workspaceId }: WorkspaceName): string {
  return compositeKey(owner, workspaceId);
}

/** The error for an unknown workspace. */
export function workspaceNotFound({ workspaceId }: WorkspaceName): BerthError {
  return new BerthError("WORKSPACE_NOT_FOUND", `There is no workspace ${JSON.stringify(workspaceId)}.`, {
    metadata: { workspace_id: workspaceId },
  });
}

/** The error for a workspace whose directory is not as it should be. `problem` also says what to do. */
export function workspaceBroken({ workspaceId }: WorkspaceName, problem: string): BerthError {
  return new BerthError(
    "WORKSPACE_BROKEN",
    `The workspace ${JSON.stringify(workspaceId)} cannot be used: ${problem}`,
    { metadata: { workspace_id: workspaceId } },
  );
}

/** The error for a workspace whose content was replaced while it was, for example, "copied". */
export function contentReplaced({ workspaceId }: WorkspaceName, done: string): BerthError {
  return new BerthError(
    "WORKSPACE_IN_USE",
    `The content of the workspace ${JSON.stringify(workspaceId)} was replaced while it was ${done}. Try again.`,
    { metadata: { workspace_id: workspaceId }, retryAfterMs: 1_000 },
  );
}
