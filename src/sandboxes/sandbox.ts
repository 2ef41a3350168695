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
  /** One sentence for users. */
  readonly message: string;
  /** Wall time in milliseconds. */
  readonly timeMs: number;
}

/** A workspace or host directory that is mounted in a sandbox. */
export interface Mount {
  readonly source:
    | { readonly kind: "workspace"; readonly workspaceId: string }
    | { readonly kind: "host"; readonly path: string };
  readonly target: string;
  readonly readOnly: boolean;
}

/** The spec of a sandbox, with all defaults filled in. Times are in milliseconds. */
export interface SandboxSpec {
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  /** Variables of every command, with the names of the secrets that are their values. */
  readonly secretEnv: Readonly<Record<string, string>>;
  readonly workingDir: string;
  /** Empty: the image's. */
  readonly user: string;
  readonly resources: Resources;
  readonly network: NetworkMode;
  /** The only domains that it can reach, through a proxy. Empty: no such limit. */
  readonly egressDomains: readonly string[];
  readonly mounts: readonly Mount[];
  readonly labels: Readonly<Record<string, string>>;
  readonly idleTimeoutMs: number;
  /** Undefined: no limit. */
  readonly maxLifetimeMs: number | undefined;
  readonly commandTimeoutMs: number;
  /** Empty: the engine's default. */
  readonly runtime: string;
}

/** A spec as any version stored it, in the database or in the answer of a request. Older ones lack these fields. */
export type StoredSpec = Omit<SandboxSpec, "egressDomains" | "secretEnv"> & Partial<SandboxSpec>;

/** The state of a sandbox, named as on the wire. */
export type SandboxState = "CREATING" | "RUNNING" | "PAUSED" | "DELETING" | "TERMINATED";

/** A snapshot of a sandbox, as clients see it. Times are wall time in milliseconds. */
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
  /** Whether it can reach the engine's own network although its spec says NONE. */
  readonly networkOpen: boolean;
}

/** What a sandbox uses, and its limits. A limit is undefined if the engine enforces none. */
export interface ResourceUsage {
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number | undefined;
  /** Since its container started. */
  readonly cpuNanos: number;
  readonly cpuLimitMillis: number | undefined;
  /** Processes and threads. */
  readonly processes: number;
  readonly processLimit: number | undefined;
  /** When it was measured: wall time in milliseconds. */
  readonly measureTimeMs: number;
}

/** What happened to a sandbox. */
export type SandboxEventBody =
  | { readonly type: "CREATING" | "RUNNING" | "PAUSED" | "RESUMED" | "UPDATED" }
  | { readonly type: "IMAGE_PULL"; readonly image: string; readonly progress: PullProgress }
  | { readonly type: "DELETING" | "TERMINATED"; readonly termination: Termination }
  | WorkspaceEventBody;

/**
 * A workspace that the sandbox mounts, or the shared directory, was found to exceed its quota, or to be within it
 * again.
 */
export interface WorkspaceEventBody {
  readonly type: `${"WORKSPACE" | "SHARED"}_${"OVER" | "WITHIN"}_QUOTA`;
  /** Empty: the shared directory. */
  readonly workspaceId: string;
  readonly sizeBytes: number;
  readonly quotaBytes: number;
}

/** An event of a sandbox, with its sequence number. */
export type SandboxEvent = LoggedEvent<SandboxEventBody>;
