import type { WorkspaceName } from "./workspace.ts";

/** What is known of a workspace, or of a shared directory, beside itself. Times are wall milliseconds. */
export interface WorkspaceRecord extends WorkspaceName {
  /** A small number that no other workspace ever had: its project in the file system's quota. */
  readonly number: number;
  /**
   * CREATING: known, and its directory may not be there yet. DELETING: it is to
   * go whatever happens; its references have gone already.
   */
  readonly state: "CREATING" | "ACTIVE" | "DELETING";
  /** The sandbox that was made for it last, which may have ended; empty: none. */
  readonly sandboxId: string;
  readonly sizeBytes: number | undefined;
  readonly createTimeMs: number;
  readonly updateTimeMs: number;
}

/** A deletion, kept for a while after its end so that a retry can be answered. */
export interface WorkspaceDeletion {
  readonly clearedRefs: number;
  /** Of the call that began it; empty: none. */
  readonly requestId: string;
  /** Whether a caller was told of its end. */
  readonly answered: boolean;
  readonly timeMs: number;
}

/**
 * Keeps what is known of workspaces. Every method is one transaction: what it
 * did stays, also when the service is killed right after.
 */
export interface WorkspaceStore {
  find(name: WorkspaceName): WorkspaceRecord | undefined;
  /** Those of an owner whose ids come after `after`, in byte order. */
  page(owner: string, after: string, limit: number): WorkspaceRecord[];
  /** The ids of all that an owner has. */
  ids(owner: string): string[];
  /** Those of every owner, shared directories among them. */
  all(): WorkspaceRecord[];
  /** Adds one. */
  insert(name: WorkspaceName, state: "CREATING" | "ACTIVE", timeMs: number): WorkspaceRecord;
  /** Its directory is there. */
  activate(name: WorkspaceName): void;
  setSandbox(name: WorkspaceName, sandboxId: string, timeMs: number): void;
  setSize(name: WorkspaceName, sizeBytes: number): void;
  /** Takes it away, its references with it. */
  remove(name: WorkspaceName): void;

  /** In byte order. */
  refs(name: WorkspaceName): string[];
  refCount(name: WorkspaceName): number;
  /** Adds a reference, or moves it here. Returns the workspace it belonged to before. */
  addRef(name: WorkspaceName, traceId: string, timeMs: number): string | undefined;
  /** Removes a reference where it belongs to this workspace, and returns whether it did. */
  removeRef(name: WorkspaceName, traceId: string, timeMs: number): boolean;
  /** The workspace that an owner's trace belongs to. */
  workspaceOf(owner: string, traceId: string): string | undefined;

  /** Puts it into DELETING and clears its references. One that is there already keeps what is known of its deletion. */
  beginDeletion(name: WorkspaceName, requestId: string, timeMs: number): WorkspaceDeletion;
  /** What is known of the newest deletion under this name. */
  deletion(name: WorkspaceName): WorkspaceDeletion | undefined;
  /** A caller was told that it has gone. */
  answerDeletion(name: WorkspaceName): void;
  /** Forgets deletions that began before a time. */
  forgetDeletions(beforeMs: number): void;
}
