/** Between the messages of sessions and what users see. */
import { type JsonValue, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { date, ms } from "./convert.ts";
import { nameOf } from "./enum-name.ts";
import { failureOf } from "./errors.ts";
import type { BatchResult, Reinitialized, SessionInfo, SessionResult, ToolResult } from "./types.ts";
import {
  type ExecuteToolResponse,
  type ReinitializeSessionResponse,
  type Session,
  type SessionResult as SessionResultMessage,
  SessionResultStatus,
  SessionStatus,
  type ToolCallResult,
} from "./v1/session_pb.js";

export function sessionInfo(session: Session): SessionInfo {
  const { sessionId, name, workerId, resourceType, customName, sandboxId, workspaceId, owner } = session;
  return {
    sessionId,
    name,
    workerId,
    resourceType,
    status: nameOf(SessionStatus, session.status),
    config: session.config ?? {},
    customName,
    sandboxId,
    workspaceId,
    ttlMs: ms(session.ttl),
    createTime: date(session.createTime),
    lastUsedTime: date(session.lastUsedTime),
    expireTime: date(session.expireTime),
    activeCalls: session.activeCalls,
    owner,
    secrets: session.secrets && { env: session.secrets.env, redact: session.secrets.redact },
  };
}

export function sessionResult({
  resourceType,
  status,
  session,
  failure,
}: SessionResultMessage): SessionResult {
  return {
    resourceType,
    status: nameOf(SessionResultStatus, status),
    session: session && sessionInfo(session),
    error: failure && failureOf(failure),
  };
}

export function reinitialized(answer: ReinitializeSessionResponse): Reinitialized {
  const { resourceType, oldSessionId, newSessionId, session, failure } = answer;
  return {
    status: nameOf(SessionResultStatus, answer.status),
    resourceType,
    oldSessionId,
    newSessionId,
    configApplied: answer.configApplied ?? {},
    session: session && sessionInfo(session),
    error: failure && failureOf(failure),
  };
}

export function toolResult<Data = JsonValue>(response: ExecuteToolResponse): ToolResult<Data> {
  const { code = 0, message, data, attachments, meta } = response;
  return {
    code,
    message,
    data: (data === undefined || data.kind.case === undefined ? null : toJson(ValueSchema, data)) as Data,
    attachments: attachments.map(({ mediaType, content, name }) => ({ mediaType, content, name })),
    meta: {
      tool: meta?.tool ?? "",
      fullName: meta?.fullName ?? "",
      resourceType: meta?.resourceType ?? "",
      sessionId: meta?.sessionId ?? "",
      temporarySession: meta?.temporarySession ?? false,
      traceId: meta?.traceId ?? "",
      executionTimeMs: meta?.executionTimeMs ?? 0,
    },
    ok: code === 0,
  };
}

export function batchResult({ outcome }: ToolCallResult): BatchResult {
  if (outcome.case === "response") return toolResult(outcome.value);
  return outcome.case === "failure" ? failureOf(outcome.value) : undefined;
}
