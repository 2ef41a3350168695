/**
 * The messages that tests read, in the form of @grpc/proto-loader: names as in the protos, 64-bit numbers as numbers,
 * enums as names, unset messages as null.
 */

import type { FileAnswers, FileStreamItems } from "./wire-files.ts";
import type { RunAnswers, RunStreamItems } from "./wire-runs.ts";
import type { SessionAnswers, SessionStreamItems } from "./wire-sessions.ts";
import type { WorkspaceAnswers, WorkspaceStreamItems } from "./wire-workspaces.ts";

export interface Duration {
  readonly seconds: number;
  readonly nanos: number;
}

export type Timestamp = Duration;

export interface Termination {
  readonly cause: string;
  readonly message: string;
  readonly time: Timestamp;
}

export interface SandboxSpec {
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  readonly working_dir: string;
  readonly user: string;
  readonly resources: {
    readonly memory_bytes: number;
    readonly cpu_millis: number;
    readonly pids_limit: number;
    readonly disk_bytes: number;
  };
  readonly network: { readonly mode: string };
  readonly labels: Readonly<Record<string, string>>;
  readonly idle_timeout: Duration | null;
  readonly max_lifetime: Duration | null;
  readonly command_timeout: Duration | null;
  readonly runtime: string;
}

export interface Sandbox {
  readonly sandbox_id: string;
  readonly spec: SandboxSpec;
  readonly state: string;
  readonly generation: number;
  readonly engine: string;
  readonly isolation: string;
  readonly owner: string;
  readonly create_time: Timestamp;
  readonly last_used_time: Timestamp;
  readonly expire_time: Timestamp | null;
  readonly active_operations: number;
  readonly termination: Termination | null;
}

export interface ResourceUsage {
  readonly memory_bytes: number;
  readonly memory_limit_bytes?: number;
  readonly cpu_time: Duration;
  readonly cpu_limit_millis?: number;
  readonly processes: number;
  readonly process_limit?: number;
  readonly measure_time: Timestamp;
}

export interface Stats {
  waiting_sandboxes?: number;
  waiting?: { sandbox_id?: string; reason: string; message: string; image: string }[];
  readonly tenant_quotas: readonly {
    readonly quota: string;
    readonly used: number;
    readonly limit?: number | null;
  }[];
  readonly total_sandboxes: number;
  readonly active_operations: number;
  readonly max_sandboxes: number;
  readonly idle_timeout: Duration;
  readonly cleanup_interval: Duration;
  readonly is_shutting_down: boolean;
  readonly sandboxes: readonly {
    readonly sandbox_id: string;
    readonly last_used: Timestamp;
    readonly is_active: boolean;
  }[];
  readonly warm_pools: readonly {
    readonly resource_type: string;
    readonly image: string;
    readonly target: number;
    readonly ready: number;
  }[];
  readonly engine: {
    readonly name: string;
    readonly version: string;
    readonly isolation: string;
    readonly capabilities: readonly string[];
    readonly available: boolean;
  };
  readonly transcripts: StorageUsage;
  readonly answers: StorageUsage;
  readonly shared_directory: {
    readonly size_bytes: number;
    readonly quota_bytes: number;
    readonly enforced: boolean;
    readonly over_quota: boolean;
  } | null;
}

export interface StorageUsage {
  readonly used_bytes: number;
  readonly memory_bytes: number;
  readonly limit_bytes: number;
  readonly owner_used_bytes: number;
  readonly owner_limit_bytes: number;
}

export interface SandboxEvent {
  readonly sequence: number;
  readonly time: Timestamp;
  readonly sandbox_id: string;
  readonly generation: number;
  readonly type: string;
  readonly termination: Termination | null;
  readonly workspace_usage: {
    readonly workspace_id: string;
    readonly size_bytes: number;
    readonly quota_bytes: number;
  } | null;
}

export interface WatchEventsResponse {
  readonly item: "event" | "trimmed" | "keepalive";
  readonly event?: SandboxEvent;
  readonly trimmed?: { readonly from_sequence: number; readonly to_sequence: number };
}

export interface ExitStatus {
  readonly cause: string;
  readonly exit_code: number;
  readonly signal: number;
  readonly duration: Duration;
  readonly stdout_bytes: number;
  readonly stderr_bytes: number;
  readonly message: string;
}

export interface Gap {
  readonly stream: string;
  readonly from_offset: number;
  readonly to_offset: number;
}

/** ExecResponse and AttachProcessResponse. */
export interface ProcessEvent {
  readonly event: "started" | "output" | "gap" | "exited" | "keepalive";
  readonly started?: { readonly process_id: string; readonly start_time: Timestamp };
  readonly output?: { readonly stream: string; readonly offset: number; readonly data: Buffer };
  readonly gap?: Gap;
  readonly exited?: ExitStatus;
}

export interface RunCommandResponse {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly exit_status: ExitStatus;
  readonly truncated: boolean;
  readonly stdout_gap: Gap | null;
  readonly stderr_gap: Gap | null;
  readonly process_id: string;
}

export interface Process {
  readonly process_id: string;
  readonly sandbox_id: string;
  readonly command?: "shell" | "argv";
  readonly shell?: string;
  readonly argv?: { readonly args: readonly string[] };
  readonly start_time: Timestamp;
  readonly exit_status: ExitStatus | null;
  readonly stdout_bytes: number;
  readonly stderr_bytes: number;
  readonly has_terminal: boolean;
}

/** Responses of the unary methods that tests call. */
export interface UnaryAnswers extends FileAnswers, RunAnswers, SessionAnswers, WorkspaceAnswers {
  "SandboxService/CreateSandbox": { readonly sandbox: Sandbox };
  "SandboxService/GetSandbox": { readonly sandbox: Sandbox };
  "SandboxService/ListSandboxes": {
    readonly sandboxes: readonly Sandbox[];
    readonly next_page_token: string;
  };
  "SandboxService/GetSandboxUsage": { readonly usage: ResourceUsage };
  "SandboxService/UpdateSandbox": { readonly sandbox: Sandbox };
  "SandboxService/KeepAliveSandbox": { readonly sandbox: Sandbox };
  "SandboxService/PauseSandbox": { readonly sandbox: Sandbox };
  "SandboxService/ResumeSandbox": { readonly sandbox: Sandbox };
  "SandboxService/DeleteSandbox": Record<string, never>;
  "SandboxService/GetStats": Stats;
  "ProcessService/RunCommand": RunCommandResponse;
  "ProcessService/WriteStdin": { readonly offset: number };
  "ProcessService/SignalProcess": Record<string, never>;
  "ProcessService/ResizeTerminal": Record<string, never>;
  "ProcessService/GetProcess": { readonly process: Process };
  "ProcessService/ListProcesses": {
    readonly processes: readonly Process[];
    readonly next_page_token: string;
  };
}

/** Items of the streaming methods that tests call. */
export interface StreamItems
  extends FileStreamItems,
    RunStreamItems,
    SessionStreamItems,
    WorkspaceStreamItems {
  "SandboxService/WatchEvents": WatchEventsResponse;
  "ProcessService/Exec": ProcessEvent;
  "ProcessService/AttachProcess": ProcessEvent;
}

/** Converts seconds to a Duration. */
export function seconds(value: number): Duration {
  const whole = Math.trunc(value);
  return { seconds: whole, nanos: Math.round((value - whole) * 1e9) };
}

/** Converts a Duration to seconds, or a Timestamp to seconds since 1970. */
export function inSeconds(duration: Duration | null | undefined): number {
  if (duration === null || duration === undefined) throw new Error("there is no duration or time");
  return duration.seconds + duration.nanos / 1e9;
}
