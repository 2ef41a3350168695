import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { randomBase32 } from "../base/ids.ts";
import type { JsonObject } from "../base/json.ts";
import type { Logger } from "../base/logger.ts";
import { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import { TOOL_CODE, type ToolOutput, type ToolResult } from "./backend.ts";
import type { SessionUse } from "./execute.ts";
import type { SessionManager } from "./manager.ts";
import { parseWith } from "./parse.ts";
import type { CatalogTool, ToolCatalog } from "./tool-catalog.ts";

/** A call of a tool. */
export interface ToolRequest {
  readonly owner: string;
  readonly workerId: string;
  /** As accepted by {@link ToolCatalog.find}. */
  readonly tool: string;
  readonly params: JsonObject;
  /** Undefined: the timeout that the params set, else the tool's default, else the sandbox's. */
  readonly timeoutMs: number | undefined;
  /** Undefined: a new id. */
  readonly traceId: string | undefined;
}

/** Where and how a tool runs. */
export interface ToolMeta {
  readonly tool: string;
  readonly fullName: string;
  readonly resourceType: string;
  readonly sessionId: string;
  readonly temporarySession: boolean;
  readonly traceId: string;
}

/** The result of a tool, and how it ran. */
export interface ToolReport extends ToolResult {
  readonly meta: ToolMeta & { readonly executionTimeMs: number };
}

/** Follows a run. */
export interface ToolObserver {
  /** The session is ready and the tool runs. */
  started(meta: ToolMeta): void;
  readonly output: ToolOutput;
}

/** For callers that want only the report. */
export const NO_OBSERVER: ToolObserver = { started: () => {}, output: { write: () => undefined } };

/** A trace id for calls that name none. */
function newTraceId(): string {
  return `trace_${randomBase32(20)}`;
}

/** Runs tools on sessions. */
export class ToolRunner {
  readonly #catalog: ToolCatalog;
  readonly #sessions: SessionManager;
  readonly #quotas: TenantQuotas;
  readonly #clock: Clock;
  readonly #logger: Logger;

  constructor(parts: {
    readonly catalog: ToolCatalog;
    readonly sessions: SessionManager;
    /** Default: no tenant has a quota. */
    readonly quotas?: TenantQuotas;
    readonly clock: Clock;
    readonly logger: Logger;
  }) {
    this.#catalog = parts.catalog;
    this.#sessions = parts.sessions;
    this.#quotas = parts.quotas ?? new TenantQuotas(parts.clock);
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /**
   * Runs a tool on the worker's session of its type, or on a temporary one. A failure of the tool itself is a report,
   * not an error.
   * @throws `TOOL_NOT_FOUND`, `INVALID_ARGUMENT`, `TENANT_QUOTA` for a command too many, and what
   *   {@link SessionManager.withSession} throws.
   */
  async run(request: ToolRequest, observer: ToolObserver, signal: AbortSignal): Promise<ToolReport> {
    const { owner, workerId, traceId = newTraceId() } = request;
    const entry = this.#catalog.find(request.tool);
    const params = await this.#parse(entry, request, signal);
    const key = { owner, workerId, resourceType: entry.type.name };
    const { tool } = entry;
    const givenMs = minOf(request.timeoutMs, tool.timeoutMs?.(params)) ?? tool.defaultTimeoutMs?.(params);
    const work = async (use: SessionUse): Promise<ToolReport> => {
      const meta: ToolMeta = {
        tool: entry.tool.name,
        fullName: entry.fullName,
        resourceType: entry.type.name,
        sessionId: use.sessionId,
        temporarySession: use.temporary,
        traceId,
      };
      const place = tool.isCommand ? this.#quotas.reserveExec(owner) : undefined;
      try {
        observer.started(meta);
        const startedAt = this.#clock.monotonicMs();
        const timeoutMs = givenMs ?? use.commandTimeoutMs;
        const result = await this.#runWithin(entry, params, use, timeoutMs, observer.output);
        const executionTimeMs = this.#clock.monotonicMs() - startedAt;
        this.#logger.debug({ ...meta, code: result.code, executionTimeMs }, "a tool ran");
        return { ...result, meta: { ...meta, executionTimeMs } };
      } finally {
        place?.release();
      }
    };
    return this.#sessions.withSession(key, signal, work, givenMs);
  }

  /** The params of a call. Bad ones restart the session's TTL, as every call does. @throws `INVALID_ARGUMENT`. */
  async #parse(
    { tool, type }: CatalogTool,
    { owner, workerId, params }: ToolRequest,
    signal: AbortSignal,
  ): Promise<unknown> {
    try {
      return parseWith(tool.params, "params", params);
    } catch (error) {
      await this.#sessions.refresh(owner, workerId, [type.name], signal);
      throw error;
    }
  }

  async #runWithin(
    { tool, fullName }: CatalogTool,
    params: unknown,
    use: SessionUse,
    timeoutMs: number,
    output: ToolOutput,
  ): Promise<ToolResult> {
    const timeout = new AbortController();
    const cancelTimer = this.#clock.setTimer(timeoutMs, () => timeout.abort());
    const { signal, restarted, backend } = use;
    try {
      const call = { signal, timeout: timeout.signal, timeoutMs, restarted, output };
      return await tool.run(backend, params, call);
    } catch (error) {
      if (!timeout.signal.aborted || signal.aborted) throw error;
      const message = `${fullName} exceeded its timeout of ${timeoutMs} ms, and was stopped.`;
      return { code: TOOL_CODE.timeout, message, data: null, attachments: [], programFailed: false };
    } finally {
      cancelTimer();
    }
  }
}

function minOf(...given: readonly (number | undefined)[]): number | undefined {
  const known = given.filter((ms) => ms !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

export interface BatchOptions {
  /** Whether they run concurrently. Calls on the same session still run one after another, in order. */
  readonly parallel: boolean;
  /** Whether to start no further call after one has failed. */
  readonly stopOnError: boolean;
  /** The trace of calls that name none. Undefined: a new id. */
  readonly traceId: string | undefined;
}

/** The result of one call. */
export type BatchResult =
  | { readonly kind: "report"; readonly report: ToolReport }
  /** The tool could not run, or its session was lost. */
  | { readonly kind: "failure"; readonly failure: unknown }
  | { readonly kind: "skipped" };

/** How many calls of a batch run concurrently. */
const MAX_PARALLEL = 16;
/** How much data and attachments the results of a batch have together. The largest result of one call fits. */
const MAX_BATCH_BYTES = 32 * 1024 * 1024;

/**
 * Runs the calls of a batch. Returns a result for each, in order. Once one does not fit with the others in what a batch
 * may return, or in memory, it and the calls that have not started fail with `MESSAGE_TOO_LARGE`.
 * @param take takes memory for a result. Returns whether there is that much.
 */
export async function runBatch(
  runner: ToolRunner,
  requests: readonly ToolRequest[],
  options: BatchOptions,
  take: (bytes: number) => boolean,
  signal: AbortSignal,
): Promise<BatchResult[]> {
  const traceId = options.traceId ?? newTraceId();
  const results = requests.map((): BatchResult => ({ kind: "skipped" }));
  const queue = [...requests.entries()];
  let stopped = false;
  let roomBytes = MAX_BATCH_BYTES;
  let isFull = false;
  const fitted = (result: BatchResult): BatchResult => {
    if (result.kind !== "report") return result;
    const bytes = sizeOf(result.report);
    if (bytes <= roomBytes && take(bytes)) {
      roomBytes -= bytes;
      return result;
    }
    isFull = true;
    const { code } = result.report;
    return tooLarge(
      `The call ran, and its code is ${code}, but its result of ${bytes} bytes does not fit with the others.`,
    );
  };
  const work = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined && !stopped; next = queue.shift()) {
      const [index, request] = next;
      const given = { ...request, traceId: request.traceId ?? traceId };
      const result = isFull
        ? tooLarge("The call did not run, because the results of others leave no room for its own.")
        : fitted(await runOne(runner, given, signal));
      results[index] = result;
      stopped ||= options.stopOnError && hasFailed(result);
    }
  };
  await Promise.all(Array.from({ length: options.parallel ? MAX_PARALLEL : 1 }, work));
  return results;
}

function sizeOf({ data, attachments }: ToolReport): number {
  const attached = attachments.reduce((sum, { content }) => sum + content.length, 0);
  return attached + Buffer.byteLength(JSON.stringify(data));
}

function tooLarge(problem: string): BatchResult {
  const limit = `The results of a batch have at most ${MAX_BATCH_BYTES / 2 ** 20} MiB together, less while the server lacks memory; run fewer calls in one.`;
  return { kind: "failure", failure: new BerthError("MESSAGE_TOO_LARGE", `${problem} ${limit}`) };
}

async function runOne(runner: ToolRunner, request: ToolRequest, signal: AbortSignal): Promise<BatchResult> {
  try {
    return { kind: "report", report: await runner.run(request, NO_OBSERVER, signal) };
  } catch (failure) {
    if (signal.aborted) throw failure;
    return { kind: "failure", failure };
  }
}

function hasFailed(result: BatchResult): boolean {
  if (result.kind !== "report") return result.kind === "failure";
  return result.report.code !== TOOL_CODE.success || result.report.programFailed;
}
