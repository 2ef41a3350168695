import type { MessageInitShape, JsonObject as WireObject } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { z } from "zod";
import { OutputStream as WireStream } from "../../gen/ts/berth/v1/process_pb.js";
import {
  type CreateSessionsRequest,
  type CreateSessionsResponseSchema,
  type DestroySessionsRequest,
  type DestroySessionsResponseSchema,
  type ExecuteToolBatchRequest,
  type ExecuteToolBatchResponseSchema,
  type ExecuteToolRequest,
  type ExecuteToolResponseSchema,
  type ExecuteToolStreamRequest,
  type ExecuteToolStreamResponseSchema,
  type ListSessionsRequest,
  type ListSessionsResponseSchema,
  type ListToolsRequest,
  type ListToolsResponseSchema,
  type RefreshSessionsRequest,
  type RefreshSessionsResponseSchema,
  type ReinitializeSessionRequest,
  type ReinitializeSessionResponseSchema,
  SessionResultStatus,
  type SessionService,
  type ViewSessionRequest,
  type ViewSessionResponseSchema,
} from "../../gen/ts/berth/v1/session_pb.js";
import { invalidArgument } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { Logger } from "../base/logger.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import { ownerOf } from "../server/call.ts";
import type { SessionManager } from "../sessions/manager.ts";
import type { ToolCatalog } from "../sessions/tool-catalog.ts";
import {
  NO_OBSERVER,
  runBatch,
  type ToolObserver,
  type ToolRequest,
  type ToolRunner,
} from "../sessions/tool-runner.ts";
import type { SessionViewer } from "../sessions/viewer.ts";
import type { RequestLog } from "../state/request-log.ts";
import {
  type FailureOf,
  fromWireResource,
  fromWireSecrets,
  fromWireWorker,
  toFailure,
  toWireBatchResult,
  toWireMeta,
  toWireReport,
  toWireResult,
  toWireSession,
  toWireView,
} from "./convert/session.ts";
import { EventQueue, withKeepalive } from "./stream.ts";
import { durationToMs, optionalCallerId, positive, requestKey } from "./validate/fields.ts";
import { decodePageToken, encodePageToken, nextPageToken, pageSize, pageSlice } from "./validate/page.ts";

export interface SessionHandlerParts {
  readonly sessions: SessionManager;
  readonly catalog: ToolCatalog;
  readonly tools: ToolRunner;
  readonly viewer: SessionViewer;
  readonly requests: RequestLog;
  /** Limits the results that batches hold until their last calls have run. */
  readonly memory: MemoryBudget;
  readonly logger: Logger;
  readonly keepaliveMs: number;
}

const MAX_RESOURCES = 32;
const MAX_CALLS = 256;
const DEFAULT_VIEWED = "vm";
/**
 * How much memory a tool's output may take before its reader catches up. Little, because a sandbox may have 256 sessions.
 */
const AHEAD_BYTES = 256 * 1024;

/** How many times its own length of memory an output may keep. */
const MOST_KEPT = 4;

type StreamEvent = MessageInitShape<typeof ExecuteToolStreamResponseSchema>;

/** Fields of all requests that run a tool. */
interface WireToolCall {
  readonly tool: string;
  readonly params?: WireObject;
  readonly timeout?: Duration;
  readonly traceId: string;
}

/** The handlers of `berth.v1.SessionService`. They validate, convert and delegate. */
export class SessionHandler implements ServiceImpl<typeof SessionService> {
  readonly #parts: SessionHandlerParts;

  constructor(parts: SessionHandlerParts) {
    this.#parts = parts;
  }

  createSessions(
    request: CreateSessionsRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof CreateSessionsResponseSchema>> {
    const { sessions, requests } = this.#parts;
    const workerId = fromWireWorker(request.workerId);
    countOf("resources", request.resources, MAX_RESOURCES);
    const asked = request.resources.map((resource, index) =>
      fromWireResource(`resources[${index}]`, resource),
    );
    const types = asked.map(({ resourceType }) => resourceType);
    const twice = types.find((type, index) => types.indexOf(type) !== index);
    if (twice !== undefined) {
      throw invalidArgument("resources", `asks for the type ${JSON.stringify(twice)} twice.`);
    }
    const key = requestKey(context, request);
    return requests.run(key, context.signal, async (signal) => {
      const results = await sessions.create(ownerOf(context), workerId, asked, signal);
      return { results: results.map((result) => toWireResult(result, this.#failureOf(context))) };
    });
  }

  executeTool(
    request: ExecuteToolRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ExecuteToolResponseSchema>> {
    const call = toolRequest(request, request.workerId, context);
    const key = requestKey(context, request);
    return this.#parts.requests.run(key, context.signal, async (signal) =>
      toWireReport(await this.#parts.tools.run(call, NO_OBSERVER, signal)),
    );
  }

  async *executeToolStream(
    request: ExecuteToolStreamRequest,
    context: HandlerContext,
  ): AsyncGenerator<StreamEvent> {
    const call = toolRequest(request, request.workerId, context);
    const key = requestKey(context, request);
    const queue = new EventQueue<StreamEvent>(AHEAD_BYTES);
    this.#parts.requests
      .run(key, context.signal, async (signal) =>
        toWireReport(await this.#parts.tools.run(call, observerOf(queue), signal)),
      )
      .then(
        (response) => {
          queue.push({ event: { case: "response", value: response } });
          queue.finish();
        },
        (error: unknown) => queue.fail(error),
      );
    let started = false;
    for await (const event of withKeepalive(queue.events(), this.#parts.keepaliveMs)) {
      // A retry gets the response of the first call, which also says how that ran.
      if (event?.event?.case === "response" && !started) {
        const { executionTimeMs: _, ...meta } = event.event.value.meta ?? {};
        yield { event: { case: "started", value: { meta } } };
      }
      started ||= event?.event?.case === "started";
      yield event ?? { event: { case: "keepalive", value: {} } };
    }
  }

  executeToolBatch(
    request: ExecuteToolBatchRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ExecuteToolBatchResponseSchema>> {
    countOf("calls", request.calls, MAX_CALLS);
    const calls = request.calls.map((call, index) =>
      toolRequest(call, request.workerId, context, `calls[${index}].`),
    );
    const { parallel, stopOnError } = request;
    const options = { parallel, stopOnError, traceId: optionalCallerId("trace_id", request.traceId) };
    const key = requestKey(context, request);
    return this.#parts.requests.run(key, context.signal, async (signal) => {
      const memory = this.#parts.memory.open(ownerOf(context), signal);
      try {
        const results = await runBatch(this.#parts.tools, calls, options, memory.take, signal);
        return { results: results.map((result) => toWireBatchResult(result, this.#failureOf(context))) };
      } finally {
        memory.close();
      }
    });
  }

  async *viewSession(
    request: ViewSessionRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof ViewSessionResponseSchema>> {
    const workerId = fromWireWorker(request.workerId);
    const resourceType = request.resourceType || DEFAULT_VIEWED;
    const key = { owner: ownerOf(context), workerId, resourceType };
    for await (const event of this.#parts.viewer.view(key, request.readOnly, context.signal)) {
      yield toWireView(event);
    }
  }

  refreshSessions(
    request: RefreshSessionsRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof RefreshSessionsResponseSchema>> {
    const workerId = fromWireWorker(request.workerId);
    const types = distinct("resource_types", request.resourceTypes);
    const key = requestKey(context, request);
    return this.#parts.requests.run(key, context.signal, async (signal) => {
      const results = await this.#parts.sessions.refresh(ownerOf(context), workerId, types, signal);
      return { results: results.map((result) => toWireResult(result, this.#failureOf(context))) };
    });
  }

  reinitializeSession(
    request: ReinitializeSessionRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ReinitializeSessionResponseSchema>> {
    const workerId = fromWireWorker(request.workerId);
    const { resourceType } = request;
    if (resourceType === "") throw invalidArgument("resource_type", "is required");
    const graceMs = durationToMs("grace", request.grace);
    const secrets = fromWireSecrets("secrets", request.secrets);
    const key = requestKey(context, request);
    return this.#parts.requests.run(key, context.signal, async (signal, progress) => {
      const done = await this.#parts.sessions.reinitialize(
        { owner: ownerOf(context), workerId, resourceType },
        { config: request.config as JsonObject | undefined, secrets },
        graceMs,
        signal,
        progress,
      );
      const { oldSessionId } = done;
      if ("failure" in done) {
        const failure = this.#failureOf(context)(done.failure);
        return { status: SessionResultStatus.FAILED, resourceType, oldSessionId, failure };
      }
      return {
        status: SessionResultStatus.REINITIALIZED,
        resourceType,
        oldSessionId,
        newSessionId: done.session.sessionId,
        configApplied: done.session.config as WireObject,
        session: toWireSession(done.session),
      };
    });
  }

  listSessions(
    request: ListSessionsRequest,
    context: HandlerContext,
  ): MessageInitShape<typeof ListSessionsResponseSchema> {
    const workerId = optionalCallerId("worker_id", request.workerId);
    const filter = { workerId, types: new Set(request.resourceTypes) };
    const { items, next } = this.#parts.sessions.list(ownerOf(context), filter, pageSlice(request));
    return { sessions: items.map(toWireSession), nextPageToken: nextPageToken(next) };
  }

  destroySessions(
    request: DestroySessionsRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof DestroySessionsResponseSchema>> {
    const workerId = fromWireWorker(request.workerId);
    const graceMs = durationToMs("grace", request.grace);
    const types = distinct("resource_types", request.resourceTypes);
    const key = requestKey(context, request);
    return this.#parts.requests.run(key, context.signal, async (_signal, progress) => {
      const owner = ownerOf(context);
      const results = await this.#parts.sessions.destroy(owner, workerId, types, graceMs, progress);
      return { results: results.map((result) => toWireResult(result, this.#failureOf(context))) };
    });
  }

  listTools(request: ListToolsRequest): MessageInitShape<typeof ListToolsResponseSchema> {
    const { catalog } = this.#parts;
    const only = request.resourceType && catalog.type("resource_type", request.resourceType);
    const types = catalog.types.filter(({ type }) => !only || type === only);
    const tools = catalog.tools.filter(({ type }) => !only || type === only);
    const size = pageSize(request.pageSize);
    const after = decodePageToken(request.pageToken, z.string()) ?? "";
    const left = tools.filter(({ fullName }) => fullName > after);
    const shown = left.slice(0, size);
    return {
      tools: shown.map(({ type, tool, fullName, paramsSchema }) => ({
        name: fullName,
        shortName: tool.name,
        resourceType: type.name,
        description: tool.description,
        paramsSchema: paramsSchema() as WireObject,
      })),
      nextPageToken: left.length > size ? encodePageToken(shown.at(-1)?.fullName) : "",
      resourceTypes: types.map(({ type, configSchema }) => ({
        name: type.name,
        description: type.description,
        configSchema: configSchema() as WireObject,
      })),
    };
  }

  #failureOf(context: HandlerContext): FailureOf {
    return (failure) => toFailure(this.#parts.logger, context.method.name, failure);
  }
}

/** @param at the position of the call in the request, for errors. */
function toolRequest(call: WireToolCall, worker: string, context: HandlerContext, at = ""): ToolRequest {
  return {
    owner: ownerOf(context),
    workerId: fromWireWorker(worker),
    tool: call.tool,
    params: (call.params ?? {}) as JsonObject,
    timeoutMs: positive(`${at}timeout`, durationToMs(`${at}timeout`, call.timeout)),
    traceId: optionalCallerId(`${at}trace_id`, call.traceId),
  };
}

function observerOf(queue: EventQueue<StreamEvent>): ToolObserver {
  return {
    started: (meta) => void queue.push({ event: { case: "started", value: { meta: toWireMeta(meta) } } }),
    output: {
      write: (stream, data) => {
        const wire = stream === "stdout" ? WireStream.STDOUT : WireStream.STDERR;
        // A small part of what was read would keep all of it while it waits for the reader.
        const own = data.length < data.buffer.byteLength / MOST_KEPT ? new Uint8Array(data) : data;
        return queue.push(
          { event: { case: "output", value: { stream: wire, data: own } } },
          own.buffer.byteLength,
        );
      },
    },
  };
}

function countOf(field: string, items: readonly unknown[], most: number): void {
  if (items.length === 0) throw invalidArgument(field, "is empty");
  if (items.length > most)
    throw invalidArgument(field, `has ${items.length} elements; at most ${most} are allowed`);
}

/** Removes duplicates: each type has its own lock and result. */
function distinct(field: string, types: readonly string[]): string[] {
  const found = [...new Set(types)];
  if (found.length > MAX_RESOURCES)
    throw invalidArgument(field, `has ${found.length} types; at most ${MAX_RESOURCES} are allowed`);
  return found;
}
