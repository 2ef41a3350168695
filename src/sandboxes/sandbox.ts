import type { IsolationLevel, NetworkMode, PullProgress, Resources } from "../engine/port.ts";
import type { LoggedEvent } from "../state/event-store.ts";

/** Why a sandbox ended. */
export type TerminationCause =
  | "DELETED"
  | "IDLE_TIMEOUT"
  | "MAX_LIFETIME"
  | "OUT_OF_MEMORY"
  | "EXITED"
  | "REMOVED_EXTERNALLY"
  | "ENGINE_LOST"
  | "CREATE_FAILED"
  | "SERVER_SHUTDOWN"
  | "UNCONTROLLABLE";

/** How a sandbox ended. */
export interface Termination {
  readonly cause: TerminationCause;
  /** One sentence for a person. */
  readonly message: string;
  /** Wall time in milliseconds. */
  readonly timeMs: number;
}

/** A workspace or host directory that appears in a sandbox. */
export interface Mount {
  readonly source:
    | { readonly kind: "workspace"; readonly workspaceId: string }
    | { readonly kind: "host"; readonly path: string };
  readonly target: string;
  readonly readOnly: boolean;
}

/** What a sandbox was created with, every default filled in. Times are in milliseconds. */
export interface SandboxSpec {
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  /** Variables of every command, and the names of the secrets that are their values. */
  readonly secretEnv: Readonly<Record<string, string>>;
  readonly workingDir: string;
  /** Empty: the image's. */
  readonly user: string;
  readonly resources: Resources;
  readonly network: NetworkMode;
  /** The only domains that it reaches, through a proxy; empty: no such bound. */
  readonly egressDomains: readonly string[];
  readonly mounts: readonly Mount[];
  readonly labels: Readonly<Record<string, string>>;
  readonly idleTimeoutMs: number;
  /** Undefined: unbounded. */
  readonly maxLifetimeMs: number | undefined;
  readonly commandTimeoutMs: number;
  /** Empty: the engine's default. */
  readonly runtime: string;
}

/** The state of a sandbox, in the names of the wire. */
export type SandboxState = "CREATING" | "RUNNING" | "PAUSED" | "DELETING" | "TERMINATED";

/** A snapshot of a sandbox, as clients see it. Times are wall milliseconds. */
export interface SandboxView {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly spec: SandboxSpec;
  readonly state: SandboxState;
  readonly engine: string;
  readonly isolation: IsolationLevel;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** Undefined while it is in use without a max lifetime, and once it has ended. */
  readonly expireTimeMs: number | undefined;
  readonly activeOperations: number;
  readonly termination: Termination | undefined;
  /** Whether it reaches the engine's own network although its spec says NONE. */
  readonly networkOpen: boolean;
}

/** What happened to a sandbox. */
export type SandboxEventBody =
  | { readonly type: "CREATING" | "RUNNING" | "PAUSED" | "RESUMED" | "UPDATED" }
  | { readonly type: "IMAGE_PULL"; readonly image: string; readonly progress: PullProgress }
  | { readonly type: "DELETING" | "TERMINATED"; readonly termination: Termination }
  | WorkspaceEventBody;

/** A workspace that the sandbox mounts, or the shared directory, was measured above its quota, or within it again. */
export interface WorkspaceEventBody {
  readonly type: `${"WORKSPACE" | "SHARED"}_${"OVER" | "WITHIN"}_QUOTA`;
  /** Empty: the shared directory. */
  readonly workspaceId: string;
  readonly sizeBytes: number;
  readonly quotaBytes: number;
}

/** An event of a sandbox with its place in the history. */
export type SandboxEvent = LoggedEvent<SandboxEventBody>;
