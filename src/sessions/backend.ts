import type { ZodType, z } from "zod";
import type { Json } from "../base/json.ts";
import type { OutputStream } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";
import type { SessionSecrets } from "./session.ts";

/**
 * A type of session, such as `bash`. It starts a {@link SessionBackend} inside a sandbox, and its tools act on that
 * backend. The manager handles sessions, their locks, deadlines and timeouts.
 *
 * Every method ends soon after its signal is aborted, and throws only `BerthError`.
 */
export interface SessionType {
  /** For example `bash`: lower-case letters and digits. */
  readonly name: string;
  /** For people and models. */
  readonly description: string;
  /** The schema of its config. The parsed value is the config in force. */
  readonly config: ZodType;
  /** At least one, with different names. */
  readonly tools: readonly Tool[];
  /**
   * The spec of a sandbox created for it. What the engine cannot provide is left out; the rest is the server's default.
   */
  readonly sandbox: RequestedSpec;
  /** Whether it uses {@link SessionHost.secrets}. Undefined: sessions of this type may have no secrets. */
  readonly takesSecrets?: boolean;
  /**
   * Refuses a config that does not fit the place where the session will live, before anything is created. Undefined:
   * every config fits.
   * @throws `INVALID_ARGUMENT`.
   */
  check?(config: unknown, home: SessionHome): void;
  /**
   * Starts a backend. A failure leaves nothing behind.
   * @param config as parsed by {@link config}.
   * @throws `SESSION_START_FAILED` if the sandbox lacks something that it needs, and the engine's errors.
   */
  initialize(host: SessionHost, config: unknown, signal: AbortSignal): Promise<SessionBackend>;
  /**
   * Starts a backend with the default config in a sandbox of the warm pool, before there is a session for it. A failure
   * leaves nothing behind. Undefined: the type has no warm pool.
   */
  prestart?(sandbox: LeasedSandbox, signal: AbortSignal): Promise<SessionBackend>;
  /**
   * Makes a backend of {@link prestart} that of a session.
   * @param config as parsed by {@link config}.
   * @returns false if the config asks for something that can no longer change. The caller then cleans this backend up
   *   and initializes another one, as it does if this fails.
   */
  adopt?(
    prestarted: SessionBackend,
    host: SessionHost,
    config: unknown,
    signal: AbortSignal,
  ): Promise<boolean>;
}

/** What is known about a session's place before its sandbox exists. */
export interface SessionHome {
  /**
   * The absolute path of the directory in the sandbox whose files outlive the session: `/` if all do. Undefined: none
   * do.
   */
  readonly keptDir: string | undefined;
}

/** Where a backend lives. */
export interface SessionHost extends SessionHome {
  readonly workerId: string;
  readonly sessionId: string;
  readonly sandbox: LeasedSandbox;
  /** The name by which managers find the sandbox. */
  readonly name: SandboxName;
  /** Undefined: only those of the sandbox. */
  readonly secrets: SessionSecrets | undefined;
}

/** The part of a session inside its sandbox: a shell, an interpreter. Calls on it run one after another. */
export interface SessionBackend {
  /** Whether it can serve another call. If not, it is cleaned up and replaced before the next call. */
  readonly alive: boolean;
  /**
   * Ends it and removes everything it left in a sandbox that stays. Idempotent.
   * @param sandboxEnds whether the sandbox is being deleted, with everything in it.
   */
  cleanup(sandboxEnds: boolean): Promise<void>;
  /**
   * Completes what outlives the session, such as files. The last call before the cleanup and before the sandbox ends;
   * both wait for it. Takes bounded time. Idempotent.
   */
  finish?(): Promise<void>;
  /** The program that shows it to a person, if it can be shown. Any number may run at once. */
  view?(readOnly: boolean): ViewCommand;
}

/** A program in the sandbox that shows a backend: it reads the viewer's input and writes the picture. */
export interface ViewCommand {
  readonly argv: readonly string[];
  /** Added to the sandbox's environment, and takes precedence. */
  readonly env: Readonly<Record<string, string>>;
  /** The protocol on its stdin and stdout. The program speaks first. */
  readonly protocol: "rfb";
  /** Size of the picture at the start, in pixels. */
  readonly width: number;
  readonly height: number;
}

/** A tool of a session type. */
export interface Tool {
  /** Its short name, for example `run`. */
  readonly name: string;
  /** What it does and returns, for people and models. */
  readonly description: string;
  readonly params: ZodType;
  /**
   * Whether each run is a command of its tenant, for the quota. Default false: it is none, or it runs one through
   * `ProcessManager`, which counts it.
   */
  readonly isCommand?: boolean;
  /** The timeout that these params set, if they do. A shorter one of the request counts. */
  timeoutMs?(params: unknown): number | undefined;
  /** The timeout if neither the request nor the params set one. Undefined: the sandbox's command timeout. */
  defaultTimeoutMs?(params: unknown): number | undefined;
  /** Runs it with params as parsed by {@link params}. */
  run(backend: SessionBackend, params: unknown, call: ToolCall): Promise<ToolResult>;
}

/** One run of a tool. */
export interface ToolCall {
  /** Aborted when the caller is gone or the session ends. The tool then stops and throws. */
  readonly signal: AbortSignal;
  /**
   * Aborted at the timeout. A tool then returns what it has, with the code `TOOL_CODE.timeout`; if it throws, there is
   * no result.
   */
  readonly timeout: AbortSignal;
  /** The timeout, measured from the start of the run. */
  readonly timeoutMs: number;
  /** Whether the previous backend was lost since the last call and this is a new one. */
  readonly restarted: boolean;
  readonly output: ToolOutput;
}

/** Receives the output of a tool's program as it is written. */
export interface ToolOutput {
  /** Returns a promise if the writer should wait before it writes more. The promise never rejects. */
  write(stream: OutputStream, chunk: Buffer): Promise<void> | undefined;
}

/** The codes of tool results. */
export const TOOL_CODE = {
  success: 0,
  /** The tool itself failed. */
  failed: 4001,
  timeout: 5006,
} as const;

export type ToolCode = (typeof TOOL_CODE)[keyof typeof TOOL_CODE];

/** Binary data that a tool returns besides its JSON data. */
export interface Attachment {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

/** The result of a tool's run. */
export interface ToolResult {
  readonly code: ToolCode;
  /** `success`, or what went wrong, for people. */
  readonly message: string;
  readonly data: Json;
  readonly attachments: readonly Attachment[];
  /** Whether a command or code that the tool ran failed. That is not a failure of the tool. */
  readonly programFailed: boolean;
}

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

/** Defines a tool with the types of its backend and its params. */
export function defineTool<R extends SessionBackend, S extends ZodType>(definition: {
  readonly name: string;
  readonly description: string;
  readonly params: S;
  readonly isCommand?: boolean;
  timeoutMs?(params: z.output<S>): number | undefined;
  defaultTimeoutMs?(params: z.output<S>): number | undefined;
  run(backend: R, params: z.output<S>, call: ToolCall): Promise<ToolResult>;
}): Tool {
  // Safe: callers parse the params with its schema and pass a backend of its session type.
  return definition as Tool;
}
