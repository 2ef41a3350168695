import type { ZodType, z } from "zod";
import type { Json } from "../base/json.ts";
import type { OutputStream } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";

/**
 * The resource port: what a session is of. A {@link SessionType} says what it
 * offers, and brings a {@link SessionBackend} into being inside a sandbox; tools act
 * on that. Sessions, their locks, deadlines and timeouts are core's business.
 *
 * All methods end soon after their signal is aborted, and throw `BerthError`
 * only.
 */
export interface SessionType {
  /** Its name, for instance `bash`: lower-case letters and digits. */
  readonly name: string;
  /** What it is, for a person or a model. */
  readonly description: string;
  /** What its config may be. What it parses to is the config in force. */
  readonly config: ZodType;
  /** At least one, of different names. */
  readonly tools: readonly Tool[];
  /** What a sandbox that is made for it has to be; the rest is the server's default. */
  readonly sandbox: RequestedSpec;
  /**
   * Brings one into being; nothing is left where it fails.
   * @param config as {@link config} parsed it.
   * @throws `SESSION_START_FAILED` where the sandbox lacks what it needs, and the engine's errors.
   */
  initialize(host: SessionHost, config: unknown, signal: AbortSignal): Promise<SessionBackend>;
}

/** Where a resource lives. */
export interface SessionHost {
  readonly workerId: string;
  readonly sessionId: string;
  readonly sandbox: LeasedSandbox;
  /** The sandbox as managers know it. */
  readonly name: SandboxName;
}

/** Something stateful inside a sandbox. Calls on it come one after the other. */
export interface SessionBackend {
  /** Whether it can serve another call. One that cannot is cleaned up and replaced before the next. */
  readonly alive: boolean;
  /**
   * Ends it: nothing of it is left in a sandbox that stays. Idempotent.
   * @param sandboxEnds the sandbox is being deleted, and takes along what is in it.
   */
  cleanup(sandboxEnds: boolean): Promise<void>;
}

/** A tool of a resource. */
export interface Tool {
  /** Its short name, for instance `run`. */
  readonly name: string;
  /** What it does and returns, for a person or a model. */
  readonly description: string;
  readonly params: ZodType;
  /** How long a call with these params may run, where they or the tool say. Undefined: the sandbox's command timeout. */
  timeoutMs?(params: unknown): number | undefined;
  /** Runs it with params as {@link params} parsed them. */
  run(resource: SessionBackend, params: unknown, call: ToolCall): Promise<ToolResult>;
}

/** One run of a tool. */
export interface ToolCall {
  /** Aborted when the caller has gone or the session has to end: the tool then stops and throws. */
  readonly signal: AbortSignal;
  /**
   * Aborted when its time is up. A tool that can tells what it knows by then,
   * with the code `TOOL_CODE.timeout`; one that throws is told to have nothing.
   */
  readonly timeout: AbortSignal;
  /** How long that is, from the beginning of the run. */
  readonly timeoutMs: number;
  /** Whether the resource was lost since the call before, and began anew. */
  readonly restarted: boolean;
  readonly output: ToolOutput;
}

/** Takes what a tool's program writes, as it comes. */
export interface ToolOutput {
  /** Returns a promise where the writer is to wait before it writes more; it never rejects. */
  write(stream: OutputStream, chunk: Buffer): Promise<void> | undefined;
}

/** What a tool may report. */
export const TOOL_CODE = {
  success: 0,
  /** The tool's own failure. */
  failed: 4001,
  timeout: 5006,
} as const;

/** What a tool reports. */
export type ToolCode = (typeof TOOL_CODE)[keyof typeof TOOL_CODE];

/** What a tool returns besides its data, in binary. */
export interface Attachment {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

/** What came of a tool's run. */
export interface ToolResult {
  readonly code: ToolCode;
  /** `success`, or what went wrong, for a person. */
  readonly message: string;
  readonly data: Json;
  readonly attachments: readonly Attachment[];
  /** Whether a command or code that the tool ran failed, which is no failure of the tool. */
  readonly programFailed: boolean;
}

/** The result of a tool that did what it should. */
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

/** Makes a tool of a function that takes its own kind of resource and its own params. */
export function defineTool<R extends SessionBackend, S extends ZodType>(definition: {
  readonly name: string;
  readonly description: string;
  readonly params: S;
  timeoutMs?(params: z.output<S>): number | undefined;
  run(resource: R, params: z.output<S>, call: ToolCall): Promise<ToolResult>;
}): Tool {
  // Whoever calls it parses with its own schema, and gives it a resource of its own type.
  return definition as Tool;
}
