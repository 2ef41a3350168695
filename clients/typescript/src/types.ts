/**
 * What the client accepts and returns: plain, read-only objects.
 *
 * Times are `Date`, durations milliseconds, sizes bytes. States, causes and kinds are the names of the service's enums,
 * such as "RUNNING"; a value that this client does not know, from a newer service, is "UNKNOWN_" and its number.
 */
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { EnumName } from "./enum-name.ts";
import type { BerthError } from "./errors.ts";
import type { FileChangeType, FileKind } from "./v1/file_pb.js";
import type { ExitCause } from "./v1/process_pb.js";
import type {
  RunEventType,
  RunMessageRole,
  RunOnEnd,
  RunOutcome,
  RunState,
  StepOutcome,
} from "./v1/run_pb.js";
import type { IsolationLevel, SandboxEventType, SandboxState, TerminationCause } from "./v1/sandbox_pb.js";
import type { SessionResultStatus, SessionStatus } from "./v1/session_pb.js";
import type { WorkspaceChangeType, WorkspaceDifference } from "./v1/workspace_pb.js";

export type { JsonObject, JsonValue } from "@bufbuild/protobuf";

/** A command line for /bin/sh, or a program and its arguments, run without a shell. */
export type Command = string | readonly string[];

/** Bytes, or text, which is sent as UTF-8. */
export type Content = string | Uint8Array | ArrayBuffer;

/** What is uploaded: a web stream, a Blob or File, bytes or text in pieces, or all at once. */
export type Source = Content | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>;

/** A path in a sandbox, absolute or relative to its working directory; bytes if it is not UTF-8. */
export type Path = string | Uint8Array;

/** Gets text as it arrives. If it returns a promise, the client waits for it. */
export type OutputCallback = (text: string) => unknown;

/** A workspace or a directory of the service's machine that appears in a sandbox. */
export type Mount = {
  /** Where it appears: an absolute path in the sandbox. */
  readonly target: string;
  readonly readOnly?: boolean;
} & ({ readonly workspaceId: string } | { readonly hostPath: string });

/** The settings of a sandbox. Unset ones take the service's defaults. */
export interface SandboxSpec {
  /** The image to start from, as Docker names it. */
  readonly image?: string;
  /** Environment of every command. */
  readonly env?: Readonly<Record<string, string>>;
  /** Variables of every command, each with the name of the service's secret that is its value. */
  readonly secretEnv?: Readonly<Record<string, string>>;
  /** Where commands start. Default /workspace. */
  readonly workingDir?: string;
  /** Who commands run as: a name or "uid[:gid]". Default: the image's. */
  readonly user?: string;
  readonly memoryBytes?: number;
  /** CPU time in thousandths of a core. */
  readonly cpuMillis?: number;
  readonly pidsLimit?: number;
  readonly diskBytes?: number;
  /** "NONE" (default), or "EGRESS": public addresses. */
  readonly network?: "NONE" | "EGRESS";
  /** The only domains it may reach, over HTTP and HTTPS: "example.org", "*.example.org" or "example.org:8443". */
  readonly egressDomains?: readonly string[];
  readonly mounts?: readonly Mount[];
  /** For `sandboxes.list`. */
  readonly labels?: Readonly<Record<string, string>>;
  /** How long it may stay unused before it is deleted. Default 1 hour. */
  readonly idleTimeoutMs?: number;
  /** How long it may live at all. Default: no limit. */
  readonly maxLifetimeMs?: number;
  /** How long commands without a timeout may run. Default 300,000. */
  readonly commandTimeoutMs?: number;
  /** An OCI runtime that the operator allowed, such as "runsc". */
  readonly runtime?: string;
}

/** How a sandbox ended. */
export interface Termination {
  readonly cause: EnumName<typeof TerminationCause>;
  /** One sentence for a person. */
  readonly message: string;
  readonly time: Date | undefined;
}

/** The data of a sandbox. */
export interface SandboxInfo {
  readonly sandboxId: string;
  readonly state: EnumName<typeof SandboxState>;
  /** Which container is behind the id, from 1. */
  readonly generation: number;
  /** "docker", "bubblewrap" or "kubernetes". */
  readonly engine: string;
  readonly isolation: EnumName<typeof IsolationLevel>;
  readonly owner: string;
  /** The effective spec, with defaults filled in. */
  readonly spec: SandboxSpec;
  readonly createTime: Date | undefined;
  readonly lastUsedTime: Date | undefined;
  /** When it will be deleted if nothing uses it. Undefined: it is in use, has ended, or never expires. */
  readonly expireTime: Date | undefined;
  readonly activeOperations: number;
  /** Only in state TERMINATED. */
  readonly termination: Termination | undefined;
}

/** What a sandbox used when it was measured, and its limits. A limit is undefined if the service enforces none. */
export interface ResourceUsage {
  /** Without file cache that the kernel can reclaim. */
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number | undefined;
  /** CPU time of all cores together, since the sandbox started. */
  readonly cpuTimeMs: number;
  /** In thousandths of a core. */
  readonly cpuLimitMillis: number | undefined;
  /** Processes and threads. */
  readonly processes: number;
  readonly processLimit: number | undefined;
  /** When it was measured, by the service's clock. */
  readonly measureTime: Date;
}

/** The figures of the service. */
export interface Stats {
  readonly totalSandboxes: number;
  readonly activeOperations: number;
  readonly maxSandboxes: number;
  readonly idleTimeoutMs: number;
  readonly cleanupIntervalMs: number;
  readonly isShuttingDown: boolean;
  readonly sandboxes: readonly { sandboxId: string; lastUsed: Date | undefined; isActive: boolean }[];
  /** "docker", "bubblewrap" or "kubernetes". */
  readonly engine: string;
}

/** One thing that happened to a sandbox. */
export interface SandboxEvent {
  readonly sequence: number;
  readonly time: Date | undefined;
  readonly sandboxId: string;
  /** TRIMMED: events before this sequence are lost. */
  readonly type: EnumName<typeof SandboxEventType> | "TRIMMED";
  readonly termination: Termination | undefined;
  /** For IMAGE_PULL: bytes fetched, and bytes known to be needed. */
  readonly pulledBytes: number;
  readonly totalBytes: number;
}

/** How a command ended. */
export interface ExitStatus {
  readonly cause: EnumName<typeof ExitCause>;
  /** 0 to 255; 128 + signal if a signal ended it; -1 if unknown. */
  readonly exitCode: number;
  /** The signal that ended it; 0 if none did. */
  readonly signal: number;
  readonly durationMs: number;
  /** Bytes it wrote to each stream, including those not kept. */
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** One sentence for a person if the cause does not say enough. */
  readonly message: string;
  /** Whether it ended by itself with exit code 0. */
  readonly ok: boolean;
}

/** Bytes that a command wrote, unchanged and in order within each stream. */
export interface Chunk {
  /** All output of a command with a terminal is stdout. */
  readonly stream: "stdout" | "stderr";
  /** Offset of the first byte in the stream. */
  readonly offset: number;
  readonly data: Uint8Array;
  /**
   * The bytes as UTF-8 text. An incomplete character comes with the next chunk of its stream; bytes that are not UTF-8
   * become U+FFFD.
   */
  readonly text: string;
  /** Bytes that are missing right before these, because the service no longer keeps them. */
  readonly lost: number;
}

/** Bytes of a stream that are missing. */
export interface Gap {
  /** Offset of the first missing byte in the stream. */
  readonly fromOffset: number;
  /** Offset of the first byte after them. */
  readonly toOffset: number;
}

/** The data of a command's process. */
export interface ProcessInfo {
  readonly processId: string;
  readonly sandboxId: string;
  readonly command: Command;
  readonly startTime: Date | undefined;
  /** Undefined while it runs. */
  readonly status: ExitStatus | undefined;
  /** Bytes written so far. */
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  readonly hasTerminal: boolean;
  readonly runId: string;
}

/** The metadata of a file. */
export interface FileInfo {
  /**
   * Its path for `stat`, its name in the directory for `list`, its path relative to the watched directory for `watch`,
   * otherwise the path that the call was given. Bytes that are not UTF-8 are U+FFFD; `rawName` is exact.
   */
  readonly name: string;
  readonly rawName: Uint8Array;
  readonly kind: EnumName<typeof FileKind>;
  readonly size: number;
  /** Permission bits, such as 0o644. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modifyTime: Date | undefined;
  /** Target of a symbolic link. */
  readonly linkTarget: string;
}

/** One change in a watched directory. */
export interface FileChange {
  readonly type: EnumName<typeof FileChangeType>;
  /** Relative to the watched directory. */
  readonly path: string;
  readonly rawPath: Uint8Array;
  /** Its metadata after the change. Undefined for REMOVED. */
  readonly file: FileInfo | undefined;
  readonly time: Date | undefined;
}

/** What was unpacked from an archive. */
export interface Unpacked {
  readonly entryCount: number;
  /** Bytes of its regular files. */
  readonly size: number;
}

/** The data of a workspace. */
export interface WorkspaceInfo {
  readonly workspaceId: string;
  /** Absolute path of its directory on the service's machine; on Kubernetes the namespace and name of its claim. */
  readonly path: string;
  readonly traceRefs: readonly string[];
  readonly refCount: number;
  /** Its live sandbox. Empty if it has none. */
  readonly sandboxId: string;
  /** Bytes its files take, as last measured. Undefined before the first measurement. */
  readonly size: number | undefined;
  readonly createTime: Date | undefined;
  readonly updateTime: Date | undefined;
  readonly owner: string;
  /** The most bytes its files may take. 0: no limit. */
  readonly quota: number;
  readonly overQuota: boolean;
  /** Whether its sandboxes have `/shared`. */
  readonly hasShared: boolean;
}

/** One entry that differs between two workspaces. */
export interface WorkspaceChange {
  readonly type: EnumName<typeof WorkspaceChangeType>;
  /** Relative to the workspace. Bytes that are not UTF-8 are U+FFFD; `rawPath` is exact. */
  readonly path: string;
  readonly rawPath: Uint8Array;
  /** What differs. Empty unless it is MODIFIED. */
  readonly differences: readonly EnumName<typeof WorkspaceDifference>[];
  /** Its metadata in the base; times in whole seconds. Undefined for ADDED. */
  readonly baseFile: FileInfo | undefined;
  /** Its metadata in the workspace; times in whole seconds. Undefined for REMOVED. */
  readonly file: FileInfo | undefined;
}

/** All workspaces, in byte order of their ids, and separately those that are broken. */
export interface WorkspaceList {
  readonly workspaces: readonly WorkspaceInfo[];
  /** `workspaceId` is empty for a foreign entry in the workspaces root. */
  readonly broken: readonly {
    readonly workspaceId: string;
    readonly path: string;
    readonly message: string;
  }[];
}

/** The data of a session. */
export interface SessionInfo {
  readonly sessionId: string;
  readonly name: string;
  readonly workerId: string;
  readonly resourceType: string;
  readonly status: EnumName<typeof SessionStatus>;
  /** Its effective settings. */
  readonly config: JsonObject;
  readonly customName: string;
  readonly sandboxId: string;
  readonly workspaceId: string;
  /** How long it lives after its last call or refresh. */
  readonly ttlMs: number;
  readonly createTime: Date | undefined;
  readonly lastUsedTime: Date | undefined;
  /** Undefined while a call runs or a view is open. */
  readonly expireTime: Date | undefined;
  readonly activeCalls: number;
  readonly owner: string;
  /** Undefined if it was created without secrets. */
  readonly secrets: SessionSecrets | undefined;
}

/** Secrets in the environment of a "bash", "python" or "code" session. */
export interface SessionSecrets {
  /** Variables, each with the name of the service's secret that is its value. */
  readonly env: Readonly<Record<string, string>>;
  /** Whether to replace those values by "[redacted]" in what tools return. Default false. */
  readonly redact?: boolean;
}

/** A session to create. */
export interface SessionResource {
  /** "bash", "python", "vm", "browser", "files" or another that `tools` returns. */
  readonly resourceType: string;
  readonly config?: JsonObject;
  readonly customName?: string;
  /** The sandbox it lives in. Default: one that is created for it. */
  readonly sandboxId?: string;
  /** The workspace to mount in the sandbox that is created for it. */
  readonly workspaceId?: string;
  /** How long it lives after its last call or refresh. Default 300,000. */
  readonly ttlMs?: number;
  readonly secrets?: SessionSecrets;
}

/** What a call did to one session. */
export interface SessionResult {
  readonly resourceType: string;
  readonly status: EnumName<typeof SessionResultStatus>;
  /** The session after the call. For a destroyed session, its last state. */
  readonly session: SessionInfo | undefined;
  /** What went wrong. */
  readonly error: BerthError | undefined;
}

/** A session that replaced another. */
export interface Reinitialized {
  /** REINITIALIZED or FAILED. */
  readonly status: EnumName<typeof SessionResultStatus>;
  readonly resourceType: string;
  /** Empty if there was none. */
  readonly oldSessionId: string;
  /** Empty for FAILED. */
  readonly newSessionId: string;
  /** The new session's effective settings. */
  readonly configApplied: JsonObject;
  readonly session: SessionInfo | undefined;
  readonly error: BerthError | undefined;
}

/** Binary data that a tool returned, such as a screenshot. */
export interface Attachment {
  /** Such as "image/png". */
  readonly mediaType: string;
  readonly content: Uint8Array;
  /** Its name in the tool's data. */
  readonly name: string;
}

/** How a tool was run. */
export interface ToolMeta {
  readonly tool: string;
  readonly fullName: string;
  readonly resourceType: string;
  readonly sessionId: string;
  readonly temporarySession: boolean;
  readonly traceId: string;
  readonly executionTimeMs: number;
}

/** What a tool reported. `Data` is what the caller knows of `data`; nothing checks it. */
export interface ToolResult<Data = JsonValue> {
  /** 0: success. 4001: the tool failed. 5006: it exceeded its timeout. */
  readonly code: number;
  /** "success", or what went wrong. */
  readonly message: string;
  readonly data: Data;
  readonly attachments: readonly Attachment[];
  readonly meta: ToolMeta;
  /** Whether `code` is 0. The result of a command, such as its exit code, is in `data`. */
  readonly ok: boolean;
}

/** Bytes that a tool's program wrote. */
export interface ToolOutput {
  readonly stream: "stdout" | "stderr";
  readonly data: Uint8Array;
}

/** One call of a batch. */
export interface ToolCall {
  /** Such as "vm:screenshot". */
  readonly tool: string;
  readonly params?: JsonObject;
  readonly timeoutMs?: number;
  readonly traceId?: string;
}

/** What the tool reported, why it could not run, or undefined if it was not started. */
export type BatchResult = ToolResult | BerthError | undefined;

/** The types of sessions and their tools. Schemas are JSON Schema. */
export interface Tools {
  readonly tools: readonly {
    /** Its full name, such as "vm:screenshot". */
    readonly name: string;
    readonly shortName: string;
    readonly resourceType: string;
    readonly description: string;
    readonly paramsSchema: JsonObject;
  }[];
  readonly resourceTypes: readonly {
    readonly name: string;
    readonly description: string;
    readonly configSchema: JsonObject;
  }[];
}

/** One step of a run, as it was reported. */
export interface RunStep {
  readonly step: number;
  readonly result: string;
  readonly outcome: EnumName<typeof StepOutcome>;
  readonly stuck: boolean;
  readonly startTime: Date | undefined;
  readonly endTime: Date | undefined;
}

/** One message of the conversation behind a run. */
export interface RunMessage {
  readonly role: EnumName<typeof RunMessageRole>;
  readonly content: string;
}

/** The data of a run. */
export interface RunInfo {
  readonly runId: string;
  readonly name: string;
  readonly state: EnumName<typeof RunState>;
  /** UNSPECIFIED before the end. */
  readonly outcome: EnumName<typeof RunOutcome>;
  readonly message: string;
  readonly currentStep: number;
  readonly maxSteps: number;
  readonly duplicateThreshold: number;
  readonly stepTimeoutMs: number;
  readonly maxDurationMs: number | undefined;
  readonly nextStepPrompt: string;
  readonly onEnd: EnumName<typeof RunOnEnd>;
  /** The newest: without the oldest if all have more than 1 MiB. Empty in `list`. */
  readonly steps: readonly RunStep[];
  readonly summary: string;
  readonly sandboxId: string;
  readonly createTime: Date | undefined;
  readonly startTime: Date | undefined;
  readonly endTime: Date | undefined;
  readonly leaseExpireTime: Date | undefined;
  readonly owner: string;
  readonly messageCount: number;
  /** The newest: at most 100, and without the oldest if they have more than 1 MiB. Only from `get(…, { includeMessages: true })`. */
  readonly messages: readonly RunMessage[];
}

/** A step that the service handed out. */
export interface NextStep {
  /** From 1. */
  readonly step: number;
  readonly prompt: string;
  readonly leaseExpireTime: Date | undefined;
  /** Identifies this start of the run; return it with the report. */
  readonly startId: string;
}

/** How a run continues after a step: one of the two is set. */
export interface Report {
  readonly nextStep: NextStep | undefined;
  readonly runEnd:
    | {
        readonly state: EnumName<typeof RunState>;
        readonly outcome: EnumName<typeof RunOutcome>;
        readonly message: string;
        readonly summary: string;
      }
    | undefined;
  /** Whether the run counts as stuck after the step. */
  readonly stuck: boolean;
}

/** One event of a run. */
export interface RunEvent {
  readonly sequence: number;
  readonly time: Date | undefined;
  /** TRIMMED: events before this sequence are lost. */
  readonly type: EnumName<typeof RunEventType> | "TRIMMED";
  readonly state: EnumName<typeof RunState>;
  readonly outcome: EnumName<typeof RunOutcome>;
  readonly message: string;
  readonly currentStep: number;
  readonly step: RunStep | undefined;
  readonly sandboxId: string;
}
