import type { JsonObject } from "../base/json.ts";

/** The state of a session, in the names of the wire. */
export type SessionState = "INITIALIZING" | "ACTIVE" | "DESTROYING";

/** What a session is called. */
export interface SessionNames {
  /** `{type}_{worker}_{NNN}`, and `_{custom}` where there is one. */
  readonly name: string;
  /** The name, `_` and 8 hexadecimal digits. */
  readonly sessionId: string;
}

/** Secrets of a session, by their names. */
export interface SessionSecrets {
  /** Variables and the names of the secrets that are their values. */
  readonly env: Readonly<Record<string, string>>;
  /** Whether the values are taken out of what its tools return. */
  readonly redact: boolean;
}

/** A validated request for a session; what its creator left out is undefined. */
export interface RequestedSession {
  readonly resourceType: string;
  /** Undefined: none given. */
  readonly config: JsonObject | undefined;
  /** Empty: the config's `custom_name`, else none. */
  readonly customName: string;
  /** The sandbox to live in; undefined: one of its own. */
  readonly sandbox: { readonly sandboxId: string; readonly generation?: number } | undefined;
  /** Empty: none. Never together with {@link sandbox}. */
  readonly workspaceId: string;
  /** Undefined: the server's default. */
  readonly ttlMs: number | undefined;
  /** Undefined: none of its own. */
  readonly secrets: SessionSecrets | undefined;
}

/** A snapshot of a session: what clients see. Times are wall milliseconds. */
export interface SessionView {
  readonly sessionId: string;
  readonly name: string;
  readonly owner: string;
  readonly workerId: string;
  readonly resourceType: string;
  readonly state: SessionState;
  readonly config: JsonObject;
  readonly customName: string;
  /** Empty while it is being made. */
  readonly sandboxId: string;
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** Undefined while a call is under way. */
  readonly expireTimeMs: number | undefined;
  /** Under way or waiting for their turn. */
  readonly activeCalls: number;
  readonly secrets: SessionSecrets | undefined;
}

/** The outcome of a call for one session. */
export type SessionOutcome =
  | { readonly status: "CREATED" | "EXISTS" | "REFRESHED"; readonly session: SessionView }
  | { readonly status: "DESTROYED"; readonly session: SessionView; readonly failure: unknown }
  | { readonly status: "NOT_FOUND" }
  | { readonly status: "FAILED"; readonly failure: unknown };

/** The outcome for one resource type. */
export type SessionResult = SessionOutcome & { readonly resourceType: string };

/** The outcome of a reinitialize. */
export type Reinitialized = { readonly oldSessionId: string } & (
  | { readonly session: SessionView }
  | { readonly failure: unknown }
);
