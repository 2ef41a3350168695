import type { Sandbox, Timestamp } from "./wire.ts";
import type { FileInfo } from "./wire-files.ts";

/** The messages of WorkspaceService that tests read; see wire.ts. */
export interface Workspace {
  readonly workspace_id: string;
  readonly path: string;
  readonly trace_refs: readonly string[];
  readonly ref_count: number;
  readonly sandbox_id: string;
  readonly size_bytes?: number;
  readonly create_time: Timestamp;
  readonly update_time: Timestamp;
  readonly owner: string;
  readonly quota_bytes: number;
  readonly quota_enforcement: string;
  readonly over_quota: boolean;
  readonly has_shared: boolean;
}

export interface BrokenWorkspace {
  readonly workspace_id: string;
  readonly path: string;
  readonly message: string;
}

export interface Ensured {
  readonly workspace: Workspace;
  readonly sandbox: Sandbox | null;
  readonly sandbox_unavailable_reason: string;
  readonly reused: boolean;
}

export interface WorkspaceAnswers {
  "WorkspaceService/CreateWorkspace": { readonly workspace: Workspace; readonly created: boolean };
  "WorkspaceService/GetWorkspace": { readonly workspace: Workspace };
  "WorkspaceService/ListWorkspaces": {
    readonly workspaces: readonly Workspace[];
    readonly next_page_token: string;
    readonly broken: readonly BrokenWorkspace[];
  };
  "WorkspaceService/EnsureWorkspaceSandbox": Ensured;
  "WorkspaceService/StopWorkspaceSandbox": { readonly workspace: Workspace };
  "WorkspaceService/AddTraceRef": { readonly workspace: Workspace; readonly previous_workspace_id: string };
  "WorkspaceService/RemoveTraceRef": { readonly workspace: Workspace };
  "WorkspaceService/LookupTrace": { readonly workspace: Workspace };
  "WorkspaceService/ForkWorkspace": { readonly workspace: Workspace };
  "WorkspaceService/CleanupWorkspace": {
    readonly workspace: Workspace | null;
    readonly cleared_ref_count: number;
    readonly deleted: boolean;
  };
}

export interface WorkspaceChange {
  readonly type: string;
  readonly path: string;
  readonly raw_path: Buffer;
  readonly differences: readonly string[];
  readonly base_file: FileInfo | null;
  readonly file: FileInfo | null;
}

export interface WorkspaceDiffSummary {
  readonly added_count: number;
  readonly removed_count: number;
  readonly modified_count: number;
  readonly added_bytes: number;
  readonly removed_bytes: number;
  readonly modified_bytes: number;
}

export interface WorkspaceStreamItems {
  "WorkspaceService/DiffWorkspace": {
    readonly item: "changes" | "summary" | "keepalive";
    readonly changes?: { readonly changes: readonly WorkspaceChange[] };
    readonly summary?: WorkspaceDiffSummary;
  };
  "WorkspaceService/ExportWorkspace": { readonly chunk: Buffer };
}

export interface WorkspaceUploadAnswers {
  "WorkspaceService/ImportWorkspace": {
    readonly workspace: Workspace;
    readonly entry_count: number;
    readonly size_bytes: number;
  };
}
