import type { PullProgress } from "../engine/port.ts";
import type { LoggedEvent } from "../state/event-store.ts";
import type { Termination } from "./sandbox.ts";

/** What happened to a sandbox. */
export type SandboxEventBody =
  | { readonly type: "CREATING" | "RUNNING" | "PAUSED" | "RESUMED" | "UPDATED" }
  | { readonly type: "IMAGE_PULL"; readonly image: string; readonly progress: PullProgress }
  | { readonly type: "DELETING" | "TERMINATED"; readonly termination: Termination }
  | WorkspaceEventBody;

/** A workspace that the sandbox mounts, or the shared directory, was measured past its quota, or within it again. */
export interface WorkspaceEventBody {
  readonly type: `${"WORKSPACE" | "SHARED"}_${"OVER" | "WITHIN"}_QUOTA`;
  /** Empty: the shared directory. */
  readonly workspaceId: string;
  readonly sizeBytes: number;
  readonly quotaBytes: number;
}

/** An event of a sandbox with its place in the history. */
export type SandboxEvent = LoggedEvent<SandboxEventBody>;
