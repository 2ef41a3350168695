import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionBackend, SessionType } from "./backend.ts";
import { SessionCalls } from "./calls.ts";
import type { SessionNames } from "./name.ts";
import type { SessionState, SessionView } from "./session.ts";
import type { StoredSession } from "./store.ts";

/** Calls on one session, under way and waiting. */
const MAX_CALLS = 1000;

/** What a session is from its beginning on. */
export interface SessionInit extends SessionNames {
  readonly owner: string;
  readonly workerId: string;
  readonly type: SessionType;
  /** As the type's schema parsed it. */
  readonly config: JsonObject;
  readonly customName: string;
  /** Empty: none. */
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly temporary: boolean;
  readonly createTimeMs: number;
}

/** Where a session lives. */
export interface SessionPlace {
  readonly sandbox: SandboxName & { readonly generation: number };
  /** Whether the sandbox was made for the session and goes with it. */
  readonly owned: boolean;
}

/** What {@link SessionRecord} is made with. */
export interface SessionRecordParts {
  readonly clock: Clock;
  readonly time: ServiceTime;
  /** Its time is over. It may have been used again since. */
  readonly onExpiry: (record: SessionRecord) => void;
  /** A call began or ended, or it was refreshed. */
  readonly onUse: (record: SessionRecord) => void;
}

/** One session in the manager's memory. State, place and resource change only under the lock of its worker and type. */
export class SessionRecord {
  readonly init: SessionInit;
  readonly calls: SessionCalls;
  state: SessionState = "INITIALIZING";
  /** Undefined until its sandbox is known. */
  place: SessionPlace | undefined;
  /** Undefined until it is initialized, and where it was lost with the service that ran it. */
  resource: SessionBackend | undefined;
  /** Why it can be used no more, where its sandbox went with the service that ran it. */
  lost: BerthError | undefined;
  readonly #parts: SessionRecordParts;
  #usedTimeMs: number;
  #usedAtMs: number;
  #expiresAt = Number.POSITIVE_INFINITY;
  #cancelTimer: CancelTimer = () => {};

  constructor(init: SessionInit, parts: SessionRecordParts) {
    this.init = init;
    this.#parts = parts;
    this.#usedTimeMs = init.createTimeMs;
    this.#usedAtMs = parts.time.nowMs();
    this.calls = new SessionCalls(MAX_CALLS, () => {
      this.touch();
      parts.onUse(this);
    });
  }

  get sessionId(): string {
    return this.init.sessionId;
  }

  /** Its time to live begins anew. */
  touch(): void {
    this.#usedTimeMs = this.#parts.clock.wallMs();
    this.#usedAtMs = this.#parts.time.nowMs();
    this.expireIn(this.init.ttlMs);
  }

  /** It expires after so long, unless it is used before. */
  expireIn(ms: number): void {
    this.#cancelTimer();
    const { clock, onExpiry } = this.#parts;
    const runsOut = this.calls.count === 0 && !this.init.temporary;
    this.#expiresAt = runsOut ? clock.monotonicMs() + ms : Number.POSITIVE_INFINITY;
    this.#cancelTimer = runsOut ? clock.setTimer(ms, () => onExpiry(this)) : () => {};
  }

  /** It does not expire any more: it ends. */
  stopTimer(): void {
    this.#cancelTimer();
  }

  get expired(): boolean {
    return this.#expiresAt <= this.#parts.clock.monotonicMs();
  }

  /** When it was last used: wall time, and service time. */
  get lastUse(): { readonly lastUsedTimeMs: number; readonly lastUsedAtMs: number } {
    return { lastUsedTimeMs: this.#usedTimeMs, lastUsedAtMs: this.#usedAtMs };
  }

  view(): SessionView {
    const { type, temporary: _, ...init } = this.init;
    const { clock } = this.#parts;
    const leftMs = this.#expiresAt - clock.monotonicMs();
    return {
      ...init,
      resourceType: type.name,
      state: this.state,
      sandboxId: this.place?.sandbox.sandboxId ?? "",
      lastUsedTimeMs: this.#usedTimeMs,
      expireTimeMs: leftMs === Number.POSITIVE_INFINITY ? undefined : clock.wallMs() + leftMs,
      activeCalls: this.calls.count,
    };
  }

  /** What is kept of it. @param place where it lives, or is to live. */
  stored({ sandbox, owned }: SessionPlace): StoredSession {
    const { type, ...init } = this.init;
    return {
      ...init,
      resourceType: type.name,
      sandboxId: sandbox.sandboxId,
      generation: sandbox.generation,
      ownsSandbox: owned,
      initialized: this.state === "ACTIVE",
      ...this.lastUse,
    };
  }
}

/** Makes the error for a session that can be used no more. */
export function sessionLost({ sessionId }: SessionRecord, why: string): BerthError {
  return new BerthError("SESSION_LOST", `The session ${JSON.stringify(sessionId)} was lost: ${why}.`, {
    metadata: { session_id: sessionId },
  });
}
