import { createHash } from "node:crypto";
import { type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { z } from "zod";
import {
  type CancelRunRequest,
  type CreateRunRequest,
  type DeleteRunRequest,
  type GetRunRequest,
  type KeepAliveRunRequest,
  type KeepAliveRunResponseSchema,
  type ListRunsRequest,
  type ReportStepRequest,
  ReportStepRequestSchema,
  type ReportStepResponseSchema,
  type ResetRunRequest,
  type Run,
  type RunService,
  type StartRunRequest,
  type StartRunResponseSchema,
  type WatchRunRequest,
  type WatchRunResponseSchema,
} from "../../gen/ts/berth/v1/run_pb.js";
import type { RunManager } from "../runs/manager.ts";
import { ownerOf } from "../server/call.ts";
import type { RequestLog } from "../state/request-log.ts";
import {
  fromWireMessages,
  fromWireRunStates,
  fromWireSettings,
  fromWireStepOutcome,
  MAX_MESSAGE_BYTES,
  toWireEnd,
  toWireNextStep,
  toWireRun,
  toWireRunEvent,
} from "./convert/run.ts";
import { withKeepalive } from "./stream.ts";
import {
  callerId,
  checkText,
  integer,
  msToTimestamp,
  optionalCallerId,
  requestKey,
} from "./validate/fields.ts";
import { decodePageToken, encodePageToken, pageSize } from "./validate/page.ts";

const MAX_RESULT_BYTES = 16 * 1024;

export interface RunHandlerParts {
  readonly runs: RunManager;
  readonly requests: RequestLog;
  readonly keepaliveMs: number;
}

/** The handlers of `berth.v1.RunService`. They validate, convert and delegate. */
export class RunHandler implements ServiceImpl<typeof RunService> {
  readonly #parts: RunHandlerParts;

  constructor(parts: RunHandlerParts) {
    this.#parts = parts;
  }

  async createRun(request: CreateRunRequest, context: HandlerContext): Promise<{ run: Run }> {
    const { runs, requests } = this.#parts;
    const settings = fromWireSettings(request);
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, async (_signal, progress) =>
      runs.create(ownerOf(context), settings, progress),
    );
    return { run: toWireRun(view) };
  }

  async startRun(
    request: StartRunRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof StartRunResponseSchema>> {
    const { runs, requests } = this.#parts;
    const runId = callerId("run_id", request.runId);
    const text = checkText("request", request.request, MAX_MESSAGE_BYTES) || undefined;
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (signal, progress) =>
      runs.start(ownerOf(context), runId, text, signal, progress),
    );
    return { run: toWireRun(view), nextStep: toWireNextStep(view.run) };
  }

  async reportStep(
    request: ReportStepRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ReportStepResponseSchema>> {
    const { runs, requests } = this.#parts;
    const runId = callerId("run_id", request.runId);
    const report = {
      step: integer("step", request.step, { min: 1 }),
      startId: optionalCallerId("start_id", request.startId) ?? "",
      messages: fromWireMessages(request.messages),
      result: checkText("result", request.result, MAX_RESULT_BYTES),
      outcome: fromWireStepOutcome(request.outcome),
      fingerprint: fingerprintOf(request),
    };
    const key = requestKey(context, request);
    const { run, end, stuck } = await requests.run(key, context.signal, (_signal, progress) =>
      runs.report(ownerOf(context), runId, report, progress),
    );
    const next = toWireNextStep(run);
    if (end !== undefined) {
      return { verdict: { case: "runEnd", value: toWireEnd(run, end.end, end.steps) }, stuck };
    }
    return next === undefined ? { stuck } : { verdict: { case: "nextStep", value: next }, stuck };
  }

  keepAliveRun(
    request: KeepAliveRunRequest,
    context: HandlerContext,
  ): MessageInitShape<typeof KeepAliveRunResponseSchema> {
    optionalCallerId("request_id", request.requestId);
    const runId = callerId("run_id", request.runId);
    const step = integer("step", request.step, { min: 0 });
    const startId = optionalCallerId("start_id", request.startId) ?? "";
    const expires = this.#parts.runs.keepAlive(ownerOf(context), runId, step, startId);
    return { leaseExpireTime: msToTimestamp(expires) };
  }

  async cancelRun(request: CancelRunRequest, context: HandlerContext): Promise<{ run: Run }> {
    const { runs, requests } = this.#parts;
    const runId = callerId("run_id", request.runId);
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (_signal, progress) =>
      runs.cancel(ownerOf(context), runId, progress),
    );
    return { run: toWireRun(view) };
  }

  async resetRun(request: ResetRunRequest, context: HandlerContext): Promise<{ run: Run }> {
    const { runs, requests } = this.#parts;
    const runId = callerId("run_id", request.runId);
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (_signal, progress) =>
      runs.reset(ownerOf(context), runId, progress),
    );
    return { run: toWireRun(view) };
  }

  getRun(request: GetRunRequest, context: HandlerContext): { run: Run } {
    const { catalog } = this.#parts.runs;
    const owner = ownerOf(context);
    const runId = callerId("run_id", request.runId);
    const skip = integer("skip_messages", request.skipMessages, { min: 0 });
    const view = catalog.get(owner, runId);
    const messages = request.includeMessages ? catalog.messages(owner, runId, skip) : [];
    return { run: toWireRun(view, { messages }) };
  }

  listRuns(request: ListRunsRequest, context: HandlerContext): { runs: Run[]; nextPageToken: string } {
    const { runs, next } = this.#parts.runs.catalog.list(ownerOf(context), {
      states: fromWireRunStates(request.states),
      limit: pageSize(request.pageSize),
      before: decodePageToken(request.pageToken, z.int().min(1)),
    });
    return {
      runs: runs.map((view) => toWireRun(view, { summary: false })),
      nextPageToken: next === undefined ? "" : encodePageToken(next),
    };
  }

  async deleteRun(request: DeleteRunRequest, context: HandlerContext): Promise<Record<string, never>> {
    const { runs, requests } = this.#parts;
    const runId = callerId("run_id", request.runId);
    const key = requestKey(context, request);
    await requests.run(key, context.signal, () => runs.delete(ownerOf(context), runId));
    return {};
  }

  async *watchRun(
    request: WatchRunRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof WatchRunResponseSchema>> {
    const runId = callerId("run_id", request.runId);
    const after = integer("after_sequence", request.afterSequence, { min: 0 });
    const items = this.#parts.runs.catalog.watch(ownerOf(context), runId, after, context.signal);
    // At once if there is nothing to send: a client that reconnects has to know that it succeeded.
    for await (const item of withKeepalive(items, this.#parts.keepaliveMs, 0)) {
      if (item === undefined) yield { item: { case: "keepalive", value: {} } };
      else if (item.type === "event") {
        yield { item: { case: "event", value: toWireRunEvent(runId, item.event) } };
      } else {
        yield {
          item: { case: "trimmed", value: { fromSequence: BigInt(item.from), toSequence: BigInt(item.to) } },
        };
      }
    }
  }
}

/** Equal for reports with the same content, whatever their request ids. */
function fingerprintOf(request: ReportStepRequest): string {
  const report = toBinary(ReportStepRequestSchema, { ...request, requestId: "" });
  return createHash("sha256").update(report).digest("base64");
}
