import type { JsonObject } from "../base/json.ts";

/** The state of a session, as named on the wire. */
export type SessionState = "INITIALIZING" | "ACTIVE" | "DESTROYING";

/** The names of a session. */
export interface SessionNames {
  /** `{type}_{worker}_{NNN}`, plus `_{custom}` if there is a custom name. */
  readonly name: string;
  /** The name, `_` and 8 hexadecimal digits. */
  readonly sessionId: string;
}

/** Secrets of a session, by name. */
export interface SessionSecrets {
  /** Maps variables to the names of the secrets whose values they get. */
  readonly env: Readonly<Record<string, string>>;
  /** Whether the values are removed from what its tools return. */
  readonly redact: boolean;
}

/** A validated request for a session. */
export interface RequestedSession {
  readonly resourceType: string;
  /** Undefined: not set. */
  readonly config: JsonObject | undefined;
  /** Empty: the config's `custom_name`, if any. */
  readonly customName: string;
  /** The sandbox to live in. Undefined: one of its own. */
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
  /** Empty while the sandbox is being created. */
  readonly sandboxId: string;
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** Undefined while a call is running. */
  readonly expireTimeMs: number | undefined;
  /** Running or waiting for their turn. */
  readonly activeCalls: number;
  readonly secrets: SessionSecrets | undefined;
}

/** The outcome of a call for one session. */
type SessionOutcome =
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
