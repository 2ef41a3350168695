/** The messages of SessionService, in the form of @grpc/proto-loader. */

import type { Duration, Timestamp } from "./wire.ts";

/** A google.protobuf.Value. */
export type WireValue =
  | { readonly kind: "nullValue" }
  | { readonly kind: "boolValue"; readonly boolValue: boolean }
  | { readonly kind: "numberValue"; readonly numberValue: number }
  | { readonly kind: "stringValue"; readonly stringValue: string }
  | { readonly kind: "listValue"; readonly listValue: { readonly values: readonly WireValue[] } }
  | { readonly kind: "structValue"; readonly structValue: WireStruct };

/** A google.protobuf.Struct. */
export interface WireStruct {
  readonly fields: Readonly<Record<string, WireValue>>;
}

export interface WireFailure {
  readonly code: number;
  readonly message: string;
  readonly detail: { readonly reason: string; readonly metadata: Readonly<Record<string, string>> } | null;
}

export interface WireSession {
  readonly session_id: string;
  readonly name: string;
  readonly worker_id: string;
  readonly resource_type: string;
  readonly status: string;
  readonly config: WireStruct | null;
  readonly custom_name: string;
  readonly sandbox_id: string;
  readonly workspace_id: string;
  readonly ttl: Duration;
  readonly create_time: Timestamp;
  readonly last_used_time: Timestamp;
  readonly expire_time: Timestamp | null;
  readonly active_calls: number;
  readonly owner: string;
  readonly secrets: { readonly env: Readonly<Record<string, string>>; readonly redact: boolean } | null;
}

export interface SessionResult {
  readonly resource_type: string;
  readonly status: string;
  readonly session: WireSession | null;
  readonly failure: WireFailure | null;
}

export interface WireToolMeta {
  readonly tool: string;
  readonly full_name: string;
  readonly resource_type: string;
  readonly session_id: string;
  readonly temporary_session: boolean;
  readonly trace_id: string;
  readonly execution_time_ms: number;
}

export interface WireToolResponse {
  readonly code: number;
  readonly message: string;
  readonly data: WireValue | null;
  readonly attachments: readonly {
    readonly media_type: string;
    readonly content: Buffer;
    readonly name: string;
  }[];
  readonly meta: WireToolMeta;
}

export interface SessionAnswers {
  "SessionService/CreateSessions": { readonly results: readonly SessionResult[] };
  "SessionService/ExecuteTool": WireToolResponse;
  "SessionService/ExecuteToolBatch": {
    readonly results: readonly {
      readonly outcome: "response" | "failure" | "skipped";
      readonly response?: WireToolResponse;
      readonly failure?: WireFailure;
    }[];
  };
  "SessionService/RefreshSessions": { readonly results: readonly SessionResult[] };
  "SessionService/ReinitializeSession": {
    readonly status: string;
    readonly resource_type: string;
    readonly old_session_id: string;
    readonly new_session_id: string;
    readonly config_applied: WireStruct | null;
    readonly session: WireSession | null;
    readonly failure: WireFailure | null;
  };
  "SessionService/ListSessions": {
    readonly sessions: readonly WireSession[];
    readonly next_page_token: string;
  };
  "SessionService/DestroySessions": { readonly results: readonly SessionResult[] };
  "SessionService/ListTools": {
    readonly tools: readonly {
      readonly name: string;
      readonly short_name: string;
      readonly resource_type: string;
      readonly description: string;
      readonly params_schema: WireStruct;
    }[];
    readonly resource_types: readonly { readonly name: string; readonly config_schema: WireStruct }[];
    readonly next_page_token: string;
  };
}

export interface WireViewStarted {
  readonly process_id: string;
  readonly protocol: string;
  readonly width: number;
  readonly height: number;
  readonly read_only: boolean;
  readonly session_id: string;
  readonly sandbox_id: string;
}

export interface SessionStreamItems {
  "SessionService/ViewSession": {
    readonly event: "started" | "data" | "exited" | "keepalive";
    readonly started?: WireViewStarted;
    readonly data?: Buffer;
    readonly exited?: { readonly cause: string; readonly exit_code: number };
  };
  "SessionService/ExecuteToolStream": {
    readonly event: "started" | "output" | "response" | "keepalive";
    readonly started?: { readonly meta: WireToolMeta };
    readonly output?: { readonly stream: string; readonly data: Buffer };
    readonly response?: WireToolResponse;
  };
}

/** Converts a plain object to a google.protobuf.Struct. */
export function toStruct(object: Readonly<Record<string, unknown>>): WireStruct {
  return { fields: Object.fromEntries(Object.entries(object).map(([key, value]) => [key, toValue(value)])) };
}

function toValue(value: unknown): WireValue {
  if (value === null || value === undefined) return { kind: "nullValue", nullValue: 0 } as WireValue;
  if (typeof value === "boolean") return { kind: "boolValue", boolValue: value };
  if (typeof value === "number") return { kind: "numberValue", numberValue: value };
  if (typeof value === "string") return { kind: "stringValue", stringValue: value };
  if (Array.isArray(value)) return { kind: "listValue", listValue: { values: value.map(toValue) } };
  return { kind: "structValue", structValue: toStruct(value as Record<string, unknown>) };
}

/** Converts a google.protobuf.Struct to a plain object. */
export function fromStruct(struct: WireStruct | null): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(struct?.fields ?? {}).map(([key, value]) => [key, fromValue(value)]),
  );
}

/** Converts a google.protobuf.Value to JSON. */
export function fromValue(value: WireValue | null): unknown {
  switch (value?.kind) {
    case "boolValue":
      return value.boolValue;
    case "numberValue":
      return value.numberValue;
    case "stringValue":
      return value.stringValue;
    case "listValue":
      return value.listValue.values.map(fromValue);
    case "structValue":
      return fromStruct(value.structValue);
    default:
      return null;
  }
}
