import type { JsonObject } from "../base/json.ts";

/** A session as it is kept over a restart. Times are wall milliseconds. */
export interface StoredSession {
  readonly sessionId: string;
  readonly name: string;
  readonly owner: string;
  readonly workerId: string;
  readonly resourceType: string;
  readonly config: JsonObject;
  readonly customName: string;
  readonly sandboxId: string;
  readonly generation: number;
  /** Whether the sandbox was made for the session and goes with it. */
  readonly ownsSandbox: boolean;
  /** Empty: none. */
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** The same in service time: see `ServiceTime`. */
  readonly lastUsedAtMs: number;
  /** Whether it belongs to one call, which has ended with the service that ran it. */
  readonly temporary: boolean;
  /** Whether it was ready to be used; where not, nobody was told of it. */
  readonly initialized: boolean;
}

/** What is kept of sessions. Synchronous: a write takes tens of microseconds. */
export interface SessionStore {
  /** Every session, oldest first. */
  all(): StoredSession[];
  /** Adds a session, or replaces what is kept of it. */
  put(session: StoredSession): void;
  /** Notes when a session was last used. */
  touch(sessionId: string, use: Pick<StoredSession, "lastUsedTimeMs" | "lastUsedAtMs">): void;
  /** Forgets a session; one that is not there is forgotten already. */
  delete(sessionId: string): void;
}
