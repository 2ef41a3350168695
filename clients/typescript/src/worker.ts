import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { duration, streamName } from "./convert.ts";
import { batchResult, reinitialized, sessionInfo, sessionResult, toolResult } from "./convert-session.ts";
import { BerthError } from "./errors.ts";
import type {
  BatchResult,
  JsonObject,
  JsonValue,
  Reinitialized,
  SessionInfo,
  SessionResource,
  SessionResult,
  SessionSecrets,
  ToolCall,
  ToolOutput,
  ToolResult,
} from "./types.ts";
import { openView, type SessionView } from "./view.ts";

const PAGE = 1000;

/** How a tool is run. */
export interface ExecuteOptions extends CallSettings {
  /** If the tool exceeds it, the code is 5006. */
  readonly timeoutMs?: number | undefined;
  readonly traceId?: string | undefined;
  /** An id that you choose: under it the tool runs once, its answer is kept, and the call is retried if the connection breaks. */
  readonly requestId?: string | undefined;
}

/**
 * A worker: it has at most one session of each type, such as "bash", "python" or "vm". Created by `berth.worker`. With
 * `await using` its sessions are destroyed at the end of the block.
 *
 * A tool that is called without a session gets one for that call only: also when the session has expired, 5 minutes
 * (`ttlMs`) after its last call. `meta.temporarySession` says so.
 */
export class Worker implements AsyncDisposable {
  readonly workerId: string;
  readonly #connection: Connection;

  constructor(connection: Connection, workerId: string) {
    this.#connection = connection;
    this.workerId = workerId;
  }

  /**
   * Creates sessions, each from a type such as "bash" or a resource, and returns when they are ready: one result each,
   * CREATED, EXISTS or FAILED. An existing session stays as it is. If the only requested resource fails, its error is
   * thrown; with several, each result has its `error`.
   */
  async create(
    resources: string | SessionResource | readonly (string | SessionResource)[],
    { signal }: CallSettings = {},
  ): Promise<SessionResult[]> {
    const wanted = [resources]
      .flat()
      .map((each) => (typeof each === "string" ? { resourceType: each } : each));
    const request = {
      ...this.#request(),
      resources: wanted.map(({ ttlMs, ...resource }) => ({ ...resource, ttl: duration(ttlMs) })),
    };
    const call = (options: object) => this.#connection.sessions.createSessions(request, options);
    const results = (await this.#connection.again(call, signal)).results.map(sessionResult);
    if (results.length === 1 && results[0]?.error) throw results[0].error;
    return results;
  }

  /**
   * Runs a tool, such as "bash:run", on the worker's session of its type, or on a temporary one.
   *
   * The tool reports `code` (0: success), `message` and `data`; binary data, such as a screenshot, is in `attachments`.
   * `execute<{ result: string | null }>(…)` gives `data` a type, which nothing checks.
   * If the tool could not run, throws TOOL_NOT_FOUND, INVALID_ARGUMENT for bad params, SESSION_LOST or
   * SESSION_START_FAILED.
   */
  async execute<Data = JsonValue>(
    tool: string,
    params: JsonObject = {},
    options: ExecuteOptions = {},
  ): Promise<ToolResult<Data>> {
    const { requestId = "", signal } = options;
    const request = { ...this.#toolFields(tool, params, options), requestId };
    const call = (settings: object) => this.#connection.sessions.executeTool(request, settings);
    return toolResult<Data>(
      await (requestId === "" ? this.#connection.once(call, signal) : this.#connection.again(call, signal)),
    );
  }

  /** Runs a tool like `execute`: yields its output as it is written, then its result. Leaving the loop ends the tool. */
  async *executeStream<Data = JsonValue>(
    tool: string,
    params: JsonObject = {},
    options: Omit<ExecuteOptions, "requestId"> = {},
  ): AsyncGenerator<ToolOutput | ToolResult<Data>, void, undefined> {
    const request = this.#toolFields(tool, params, options);
    const call = (settings: object) => this.#connection.sessions.executeToolStream(request, settings);
    for await (const { event } of this.#connection.stream(call, options.signal)) {
      if (event.case === "output") yield { stream: streamName(event.value.stream), data: event.value.data };
      if (event.case !== "response") continue;
      yield toolResult<Data>(event.value);
      return;
    }
    throw new BerthError("The service ended the stream without saying what the tool came to.");
  }

  /**
   * Runs several tools, one after the other or in parallel; those on one session always one after the other. Returns
   * for each call a ToolResult, the BerthError because of which it could not run, or undefined if `stopOnError`
   * prevented its start.
   */
  async executeBatch(
    calls: readonly ToolCall[],
    options: Omit<ExecuteOptions, "timeoutMs"> & {
      readonly parallel?: boolean;
      readonly stopOnError?: boolean;
    } = {},
  ): Promise<BatchResult[]> {
    const { parallel = false, stopOnError = false, traceId = "", requestId = "", signal } = options;
    const request = {
      requestId,
      workerId: this.workerId,
      calls: calls.map(({ tool, params, timeoutMs, traceId: id = "" }) => ({
        tool,
        params: params ?? {},
        timeout: duration(timeoutMs),
        traceId: id,
      })),
      parallel,
      stopOnError,
      traceId,
    };
    const call = (settings: object) => this.#connection.sessions.executeToolBatch(request, settings);
    const answer =
      requestId === "" ? this.#connection.once(call, signal) : this.#connection.again(call, signal);
    return (await answer).results.map(batchResult);
  }

  /** Restarts the TTL of sessions; without types, of all. One result each: REFRESHED or NOT_FOUND. */
  async refresh(
    resourceTypes: readonly string[] = [],
    { signal }: CallSettings = {},
  ): Promise<SessionResult[]> {
    const request = { ...this.#request(), resourceTypes: [...resourceTypes] };
    const call = (options: object) => this.#connection.sessions.refreshSessions(request, options);
    return (await this.#connection.again(call, signal)).results.map(sessionResult);
  }

  /**
   * Replaces a session with a new one. `config` replaces all settings, `secrets` all secrets; undefined keeps them. If
   * the new session cannot be created, the status is FAILED with an `error`, and the old session is gone.
   */
  async reinitialize(
    resourceType: string,
    config?: JsonObject,
    { secrets, signal }: CallSettings & { readonly secrets?: SessionSecrets } = {},
  ): Promise<Reinitialized> {
    const settings = { ...(config && { config }), ...(secrets && { secrets }) };
    const request = { ...this.#request(), resourceType, ...settings };
    const call = (options: object) => this.#connection.sessions.reinitializeSession(request, options);
    return reinitialized(await this.#connection.again(call, signal));
  }

  /** Ends sessions; without types, all. Running calls may continue for `graceMs` (default 5000). Idempotent. */
  async destroy(
    resourceTypes: readonly string[] = [],
    { graceMs, signal }: CallSettings & { readonly graceMs?: number } = {},
  ): Promise<SessionResult[]> {
    const request = { ...this.#request(), resourceTypes: [...resourceTypes], grace: duration(graceMs) };
    const call = (options: object) => this.#connection.sessions.destroySessions(request, options);
    return (await this.#connection.again(call, signal)).results.map(sessionResult);
  }

  /** Its sessions, newest first. */
  list(options: CallSettings = {}): Promise<SessionInfo[]> {
    return listSessions(this.#connection, this.workerId, options);
  }

  /**
   * Shows a session live, such as a desktop ("vm"): see {@link SessionView}. Throws SESSION_NOT_FOUND, UNSUPPORTED for
   * a type that has no view, TOO_MANY_OPERATIONS.
   */
  view(
    resourceType: string,
    { readOnly = false, signal }: CallSettings & { readonly readOnly?: boolean } = {},
  ): Promise<SessionView> {
    return openView(this.#connection, { workerId: this.workerId, resourceType, readOnly }, signal);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy([], { graceMs: 0 }).then(() => undefined);
  }

  #request() {
    return { requestId: newRequestId(), workerId: this.workerId };
  }

  #toolFields(tool: string, params: JsonObject, { timeoutMs, traceId = "" }: ExecuteOptions) {
    return { workerId: this.workerId, tool, params, timeout: duration(timeoutMs), traceId };
  }
}

/** Sessions, newest first: of one worker, or of all. */
export function listSessions(
  connection: Connection,
  workerId: string,
  { signal }: CallSettings,
): Promise<SessionInfo[]> {
  return allPages(async (pageToken) => {
    const request = { workerId, pageSize: PAGE, pageToken };
    const call = (options: object) => connection.sessions.listSessions(request, options);
    const { sessions, nextPageToken } = await connection.again(call, signal);
    return { items: sessions.map(sessionInfo), nextPageToken };
  });
}
