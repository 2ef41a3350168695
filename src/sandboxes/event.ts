import type { PullProgress } from "../engine/port.ts";
import type { Termination } from "./sandbox.ts";

/** What happened to a sandbox. */
export type SandboxHappening =
  | { readonly type: "CREATING" | "RUNNING" | "PAUSED" | "RESUMED" | "UPDATED" }
  | { readonly type: "IMAGE_PULL"; readonly image: string; readonly progress: PullProgress }
  | { readonly type: "DELETING" | "TERMINATED"; readonly termination: Termination }
  | WorkspaceHappening;

/** A workspace that the sandbox mounts, or the shared directory, was measured past its quota, or within it again. */
export interface WorkspaceHappening {
  readonly type: `${"WORKSPACE" | "SHARED"}_${"OVER" | "WITHIN"}_QUOTA`;
  /** Empty: the shared directory. */
  readonly workspaceId: string;
  readonly sizeBytes: number;
  readonly quotaBytes: number;
}

/** An event with its place in the history. */
export interface SandboxEvent {
  /** Strictly growing, from 1. */
  readonly sequence: number;
  readonly timeMs: number;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly happening: SandboxHappening;
}
