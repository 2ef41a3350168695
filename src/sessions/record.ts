import { Mutex } from "async-mutex";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionBackend, SessionType } from "./backend.ts";
import type { SessionNames, SessionSecrets, SessionState, SessionView } from "./session.ts";
import type { StoredSession } from "./store.ts";
import { SessionViews } from "./views.ts";

/** Calls on one session, under way and waiting. */
const MAX_CALLS = 1000;

/** The part of a session that never changes. */
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
  /** Names, never values. */
  readonly secrets: SessionSecrets | undefined;
}

/** Where a session lives. */
export interface SessionPlace {
  readonly sandbox: SandboxName & { readonly generation: number };
  /** Whether the sandbox was made for the session and goes with it. */
  readonly owned: boolean;
}

/** What {@link SessionRecord} is made with. */
interface SessionRecordParts {
  readonly clock: Clock;
  readonly time: ServiceTime;
  /** Its time is up. It may have been used again since. */
  readonly onExpiry: (record: SessionRecord) => void;
  /** A call or view began or ended, or it was refreshed. */
  readonly onUse: (record: SessionRecord) => void;
}

/** One session in the manager's memory. State, place and backend change only under the lock of its worker and type. */
export class SessionRecord {
  readonly init: SessionInit;
  readonly calls: SessionCalls;
  readonly views: SessionViews;
  state: SessionState = "INITIALIZING";
  /** Undefined until its sandbox is known. */
  place: SessionPlace | undefined;
  /** Undefined until it is initialized, and after a restart of the service. */
  backend: SessionBackend | undefined;
  /** Why it can be used no more, where its sandbox did not survive a restart of the service. */
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
    const onChange = (): void => {
      this.touch();
      parts.onUse(this);
    };
    this.calls = new SessionCalls(MAX_CALLS, onChange);
    this.views = new SessionViews(onChange);
  }

  get sessionId(): string {
    return this.init.sessionId;
  }

  /** Restarts its time to live. */
  touch(): void {
    this.#usedTimeMs = this.#parts.clock.wallMs();
    this.#usedAtMs = this.#parts.time.nowMs();
    this.expireIn(this.init.ttlMs);
  }

  /** Lets it expire after `ms`, unless it is used before. */
  expireIn(ms: number): void {
    this.#cancelTimer();
    const { clock, onExpiry } = this.#parts;
    const isUsed = this.calls.count > 0 || this.views.count > 0;
    const runsOut = !isUsed && !this.init.temporary;
    this.#expiresAt = runsOut ? clock.monotonicMs() + ms : Number.POSITIVE_INFINITY;
    this.#cancelTimer = runsOut ? clock.setTimer(ms, () => onExpiry(this)) : () => {};
  }

  /** Lets it expire no more: it ends. */
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

  /** What the store keeps of it. @param place where it lives, or will live. */
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

/** The error for a session that can be used no more. */
export function sessionLost({ sessionId }: SessionRecord, why: string): BerthError {
  return new BerthError("SESSION_LOST", `The session ${JSON.stringify(sessionId)} was lost: ${why}.`, {
    metadata: { session_id: sessionId },
  });
}

/** A call on a session, from its arrival to its end. */
export interface SessionCall {
  /** Aborted with `SESSION_LOST` when the call has to end now. */
  readonly signal: AbortSignal;
  /** Resolves when it is this call's turn; calls on one session come one after the other, in their order. */
  readonly turn: Promise<void>;
  /** Ends the call: the next one's turn. Idempotent. */
  end(): void;
}

/** The calls on one session, under way and waiting. While there is one, the session does not expire. */
export class SessionCalls {
  readonly #turns = new Mutex();
  readonly #open = new Set<AbortController>();
  readonly #drained = new Set<() => void>();
  readonly #limit: number;
  readonly #onChange: () => void;

  /** @param onChange called whenever a call begins or ends. */
  constructor(limit: number, onChange: () => void) {
    this.#limit = limit;
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#open.size;
  }

  /** @throws `TOO_MANY_OPERATIONS` at the limit. */
  begin(): SessionCall {
    if (this.#open.size >= this.#limit) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The session has reached its limit of ${this.#limit} calls. Wait for one to end.`,
        { metadata: { limit: String(this.#limit) } },
      );
    }
    const controller = new AbortController();
    this.#open.add(controller);
    this.#onChange();
    const acquired = this.#turns.acquire();
    let over = false;
    return {
      signal: controller.signal,
      turn: acquired.then(() => {}),
      end: () => {
        if (over) return;
        over = true;
        acquired.then((release) => release()).catch(() => {});
        this.#open.delete(controller);
        this.#onChange();
        if (this.#open.size > 0) return;
        for (const resolve of this.#drained) resolve();
        this.#drained.clear();
      },
    };
  }

  /** Aborts every call. */
  abortAll(reason: BerthError): void {
    for (const controller of this.#open) controller.abort(reason);
  }

  /** Resolves when there is no call. */
  async drained(): Promise<void> {
    if (this.#open.size === 0) return;
    await new Promise<void>((resolve) => this.#drained.add(resolve));
  }
}
