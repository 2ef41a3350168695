import { create, fromJson, type MessageInitShape, type JsonObject as WireObject } from "@bufbuild/protobuf";
import { type Duration, ValueSchema } from "@bufbuild/protobuf/wkt";
import { ErrorDetailSchema, type Failure, FailureSchema } from "../../../gen/ts/berth/v1/error_pb.js";
import {
  type ExecuteToolResponseSchema,
  type SessionResource,
  type SessionResultSchema,
  SessionResultStatus,
  type SessionSchema,
  SessionStatus,
  type ToolCallResultSchema,
  type ToolMetaSchema,
  type ViewSessionResponseSchema,
  type SessionSecrets as WireSecrets,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { BerthError, invalidArgument } from "../../base/errors.ts";
import type { JsonObject } from "../../base/json.ts";
import type { Logger } from "../../base/logger.ts";
import { internalError, toConnectError } from "../../server/error-conversion.ts";
import type {
  RequestedSession,
  SessionResult,
  SessionSecrets,
  SessionState,
  SessionView,
} from "../../sessions/session.ts";
import type { BatchResult, ToolMeta, ToolReport } from "../../sessions/tool-runner.ts";
import type { ViewEvent } from "../../sessions/viewer.ts";
import {
  callerId,
  durationToMs,
  integer,
  msToDuration,
  msToTimestamp,
  optionalCallerId,
  positive,
  secretReferences,
} from "../validate/fields.ts";
import { toWireStatus } from "./process.ts";

const CUSTOM_NAME = /^[A-Za-z0-9_-]{1,64}$/;
/** Converts an error to a part of an answer. */
export type FailureOf = (failure: unknown) => Failure;

const STATES: Record<SessionState, SessionStatus> = {
  INITIALIZING: SessionStatus.INITIALIZING,
  ACTIVE: SessionStatus.ACTIVE,
  DESTROYING: SessionStatus.DESTROYING,
};

const RESULTS: Record<SessionResult["status"], SessionResultStatus> = {
  CREATED: SessionResultStatus.CREATED,
  EXISTS: SessionResultStatus.EXISTS,
  REFRESHED: SessionResultStatus.REFRESHED,
  DESTROYED: SessionResultStatus.DESTROYED,
  NOT_FOUND: SessionResultStatus.NOT_FOUND,
  FAILED: SessionResultStatus.FAILED,
};

/** Converts the request for one session. @param field of the request, for errors. */
export function fromWireResource(field: string, resource: SessionResource): RequestedSession {
  const { resourceType, config, customName } = resource;
  if (resourceType === "") throw invalidArgument(`${field}.resource_type`, "is required");
  if (customName !== "" && !CUSTOM_NAME.test(customName)) {
    throw invalidArgument(`${field}.custom_name`, 'must be 1-64 of a-z, A-Z, 0-9, "_" and "-"');
  }
  const sandboxId = optionalCallerId(`${field}.sandbox_id`, resource.sandboxId);
  const workspaceId = optionalCallerId(`${field}.workspace_id`, resource.workspaceId) ?? "";
  const generation = integer(`${field}.generation`, resource.generation, { min: 0 });
  if (sandboxId !== undefined && workspaceId !== "") {
    throw invalidArgument(
      `${field}.workspace_id`,
      "cannot be mounted in a sandbox that already exists: leave out workspace_id or sandbox_id",
    );
  }
  return {
    resourceType,
    config: config as JsonObject | undefined,
    customName,
    workspaceId,
    ttlMs: ttl(`${field}.ttl`, resource.ttl),
    secrets: fromWireSecrets(`${field}.secrets`, resource.secrets),
    sandbox: sandboxId === undefined ? undefined : { sandboxId, ...(generation > 0 && { generation }) },
  };
}

/** Converts the secrets of a session. @param field of the request, for errors. */
export function fromWireSecrets(field: string, secrets: WireSecrets | undefined): SessionSecrets | undefined {
  return secrets && { env: secretReferences(`${field}.env`, secrets.env), redact: secrets.redact };
}

function ttl(field: string, duration: Duration | undefined): number | undefined {
  return positive(field, durationToMs(field, duration));
}

/** The worker of a request, validated. */
export function fromWireWorker(workerId: string): string {
  return callerId("worker_id", workerId);
}

export function toWireSession(view: SessionView): MessageInitShape<typeof SessionSchema> {
  return {
    ...view,
    status: STATES[view.state],
    config: view.config as WireObject,
    secrets: view.secrets && { env: { ...view.secrets.env }, redact: view.secrets.redact },
    ttl: msToDuration(view.ttlMs),
    createTime: msToTimestamp(view.createTimeMs),
    lastUsedTime: msToTimestamp(view.lastUsedTimeMs),
    expireTime: view.expireTimeMs === undefined ? undefined : msToTimestamp(view.expireTimeMs),
  };
}

export function toWireResult(
  result: SessionResult,
  failureOf: FailureOf,
): MessageInitShape<typeof SessionResultSchema> {
  const failure = "failure" in result && result.failure !== undefined ? failureOf(result.failure) : undefined;
  return {
    resourceType: result.resourceType,
    status: RESULTS[result.status],
    ...("session" in result && { session: toWireSession(result.session) }),
    ...(failure && { failure }),
  };
}

export function toWireMeta(meta: ToolMeta): MessageInitShape<typeof ToolMetaSchema> {
  return { ...meta };
}

export function toWireReport(report: ToolReport): MessageInitShape<typeof ExecuteToolResponseSchema> {
  const { code, message, data, attachments, meta } = report;
  return {
    code,
    message,
    data: data === null ? undefined : fromJson(ValueSchema, wellFormed(data) as WireObject),
    attachments: attachments.map((attachment) => ({ ...attachment })),
    meta: { ...toWireMeta(meta), executionTimeMs: Math.round(meta.executionTimeMs) },
  };
}

export function toWireBatchResult(
  result: BatchResult,
  failureOf: FailureOf,
): MessageInitShape<typeof ToolCallResultSchema> {
  switch (result.kind) {
    case "report":
      return { outcome: { case: "response", value: toWireReport(result.report) } };
    case "failure":
      return { outcome: { case: "failure", value: failureOf(result.failure) } };
    case "skipped":
      return { outcome: { case: "skipped", value: {} } };
  }
}

export function toWireView(event: ViewEvent): MessageInitShape<typeof ViewSessionResponseSchema> {
  switch (event.type) {
    case "started": {
      const { processId, sessionId, sandboxId, readOnly, command } = event;
      const { protocol, width, height } = command;
      const value = { processId, sessionId, sandboxId, readOnly, protocol, width, height };
      return { event: { case: "started", value } };
    }
    case "data": {
      return { event: { case: "data", value: event.data as Uint8Array<ArrayBuffer> } };
    }
    case "exited":
      return { event: { case: "exited", value: toWireStatus(event.status) } };
    case "keepalive":
      return { event: { case: "keepalive", value: {} } };
  }
}

/** The wire refuses lone surrogates, which a program's JSON may contain. */
function wellFormed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(wellFormed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, part]) => [key.toWellFormed(), wellFormed(part)]),
  );
}

/** Converts the failure of a part of a call to a part of its answer, with the same content as the call's own error. */
export function toFailure(logger: Logger, method: string, thrown: unknown): Failure {
  const known = thrown instanceof BerthError && thrown.reason !== "INTERNAL";
  const error = toConnectError(known ? thrown : internalError(logger, method, thrown));
  const [detail] = error.findDetails(ErrorDetailSchema);
  return create(FailureSchema, { code: error.code, message: error.rawMessage, detail });
}
