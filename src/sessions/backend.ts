import type { ZodType, z } from "zod";
import type { Json } from "../base/json.ts";
import type { OutputStream } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";
import type { Prepared } from "../sandboxes/warm-pool.ts";
import type { SessionSecrets } from "./session.ts";

/**
 * A type of session, such as `bash`: it initializes a {@link SessionBackend}
 * inside a sandbox, on which its tools act. Sessions, their locks, deadlines and
 * timeouts are the manager's.
 *
 * All methods end soon after their signal is aborted, and throw only
 * `BerthError`.
 */
export interface SessionType {
  /** Its name, for instance `bash`: lower-case letters and digits. */
  readonly name: string;
  /** For a person or a model. */
  readonly description: string;
  /** The schema of its config. What it parses to is the config in force. */
  readonly config: ZodType;
  /** At least one, with different names. */
  readonly tools: readonly Tool[];
  /** The spec of a sandbox that is made for it, as far as the engine can give it; the rest is the server's default. */
  readonly sandbox: RequestedSpec;
  /** Whether {@link SessionHost.secrets} come to something. Undefined: no session of it may have any. */
  readonly takesSecrets?: boolean;
  /**
   * Refuses a config that does not fit where the session is to live, before anything is made. Undefined: each fits.
   * @throws `INVALID_ARGUMENT`.
   */
  check?(config: unknown, home: SessionHome): void;
  /**
   * Starts a backend; a failure leaves nothing.
   * @param config as {@link config} parsed it.
   * @throws `SESSION_START_FAILED` where the sandbox lacks what it needs, and the engine's errors.
   */
  initialize(host: SessionHost, config: unknown, signal: AbortSignal): Promise<SessionBackend>;
  /**
   * Starts a backend with the default config in a sandbox of the warm pool, ahead
   * of the session that it will serve; a failure leaves nothing. Undefined: the
   * type has no warm pool.
   */
  prestart?(sandbox: LeasedSandbox, signal: AbortSignal): Promise<PrestartedBackend>;
}

/** A backend that waits for its session in a sandbox of the warm pool. */
export interface PrestartedBackend extends Prepared {
  /**
   * Makes it the backend of a session.
   * @param config as {@link SessionType.config} parsed it.
   * @returns undefined where the config asks for what is fixed by now: it is then cleaned up, and another one initialized.
   */
  adopt(host: SessionHost, config: unknown, signal: AbortSignal): Promise<SessionBackend | undefined>;
}

/** What of a session's place is known before its sandbox is there. */
export interface SessionHome {
  /** The directory in the sandbox whose files outlive the session, absolute: `/` for all of them. Undefined: none do. */
  readonly keptDir: string | undefined;
}

/** Where a backend lives. */
export interface SessionHost extends SessionHome {
  readonly workerId: string;
  readonly sessionId: string;
  readonly sandbox: LeasedSandbox;
  /** The sandbox as managers know it. */
  readonly name: SandboxName;
  /** Undefined: none but the sandbox's. */
  readonly secrets: SessionSecrets | undefined;
}

/** The stateful thing of a session inside its sandbox: a shell, an interpreter. Calls on it come one after the other. */
export interface SessionBackend {
  /** Whether it can serve another call. One that cannot is cleaned up and replaced before the next call. */
  readonly alive: boolean;
  /**
   * Ends it: nothing of it is left in a sandbox that stays. Idempotent.
   * @param sandboxEnds whether the sandbox is being deleted, with everything in it.
   */
  cleanup(sandboxEnds: boolean): Promise<void>;
  /**
   * Completes what of it outlives the session, such as files, as its last act: bounded in time,
   * and awaited before its cleanup and before its sandbox ends. Idempotent.
   */
  finish?(): Promise<void>;
  /** What shows it to a person, where anything does. Any number may run at once. */
  view?(readOnly: boolean): ViewCommand;
}

/** A program that shows a backend, run in its sandbox: it reads what the viewer does, and writes what there is to see. */
export interface ViewCommand {
  readonly argv: readonly string[];
  /** Over the sandbox's. */
  readonly env: Readonly<Record<string, string>>;
  /** What it speaks on its stdin and stdout; it begins by itself. */
  readonly protocol: "rfb";
  /** Of the picture as it starts, in pixels. */
  readonly width: number;
  readonly height: number;
}

/** A tool of a session type. */
export interface Tool {
  /** Its short name, for instance `run`. */
  readonly name: string;
  /** What it does and returns, for a person or a model. */
  readonly description: string;
  readonly params: ZodType;
  /** The timeout of a call with these params, where they or the tool set one. Undefined: the sandbox's command timeout. */
  timeoutMs?(params: unknown): number | undefined;
  /** Runs it with params as {@link params} parsed them. */
  run(backend: SessionBackend, params: unknown, call: ToolCall): Promise<ToolResult>;
}

/** One run of a tool. */
export interface ToolCall {
  /** Aborted when the caller is gone or the session ends: the tool then stops and throws. */
  readonly signal: AbortSignal;
  /**
   * Aborted when its time is up. A tool that can returns what it has by then,
   * with the code `TOOL_CODE.timeout`; one that throws has no result.
   */
  readonly timeout: AbortSignal;
  /** That time, from the start of the run. */
  readonly timeoutMs: number;
  /** Whether the backend was lost since the call before, and is a new one. */
  readonly restarted: boolean;
  readonly output: ToolOutput;
}

/** Takes what a tool's program writes, as it comes. */
export interface ToolOutput {
  /** Returns a promise where the writer should wait before it writes more; it never rejects. */
  write(stream: OutputStream, chunk: Buffer): Promise<void> | undefined;
}

/** The codes of tool results. */
export const TOOL_CODE = {
  success: 0,
  /** The tool's own failure. */
  failed: 4001,
  timeout: 5006,
} as const;

export type ToolCode = (typeof TOOL_CODE)[keyof typeof TOOL_CODE];

/** What a tool returns besides its data, in binary. */
export interface Attachment {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

/** The result of a tool's run. */
export interface ToolResult {
  readonly code: ToolCode;
  /** `success`, or what went wrong, for a person. */
  readonly message: string;
  readonly data: Json;
  readonly attachments: readonly Attachment[];
  /** Whether a command or code that the tool ran failed, which is not a failure of the tool. */
  readonly programFailed: boolean;
}

/** The result of a tool that succeeded. */
export function succeeded(data: Json, more: Partial<ToolResult> = {}): ToolResult {
  return {
    code: TOOL_CODE.success,
    message: "success",
    data,
    attachments: [],
    programFailed: false,
    ...more,
  };
}

/** Defines a tool with its own kind of backend and its own params. */
export function defineTool<R extends SessionBackend, S extends ZodType>(definition: {
  readonly name: string;
  readonly description: string;
  readonly params: S;
  timeoutMs?(params: z.output<S>): number | undefined;
  run(backend: R, params: z.output<S>, call: ToolCall): Promise<ToolResult>;
}): Tool {
  // Callers parse with its schema, and pass a backend of its type.
  return definition as Tool;
}
