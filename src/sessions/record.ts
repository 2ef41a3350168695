import type { CancelTimer, Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import { Turns } from "../base/turns.ts";
import type { SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionBackend, SessionType } from "./backend.ts";
import type { RequestedSession, SessionNames, SessionSecrets, SessionState, SessionView } from "./session.ts";
import type { LastUse, StoredSession } from "./store.ts";

/** Calls on one session, running and waiting; and those that wait for it to start or end. */
export const MAX_CALLS = 1000;
/** Views of one session. */
const MAX_VIEWS = 8;

/** The part of a session that never changes. */
export interface SessionInit extends SessionNames {
  readonly owner: string;
  readonly workerId: string;
  readonly type: SessionType;
  /** As parsed by the type's schema. */
  readonly config: JsonObject;
  readonly customName: string;
  /** The sandbox that its creator named. Undefined: one of its own. */
  readonly sandbox: RequestedSession["sandbox"];
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
  /** Whether the sandbox was created for the session and is deleted with it. */
  readonly owned: boolean;
}

interface SessionRecordParts {
  readonly clock: Clock;
  readonly time: ServiceTime;
  /** Called when its TTL is over. It may have been used again since. */
  readonly onExpiry: (record: SessionRecord) => void;
  /** Called when a call or a view starts or ends, and on a refresh. */
  readonly onUse: (record: SessionRecord) => void;
}

/** One session in memory. State, place and backend change only under the lock of its owner, worker and type. */
export class SessionRecord {
  readonly init: SessionInit;
  /** Size of its config and its secrets' names, as JSON. */
  readonly bytes: number;
  readonly calls: SessionCalls;
  readonly views: SessionViews;
  state: SessionState = "INITIALIZING";
  /** Undefined until its sandbox is known. */
  place: SessionPlace | undefined;
  /** Undefined until it is initialized, and after a restart of the service. */
  backend: SessionBackend | undefined;
  /** Why it can no longer be used, if its sandbox did not survive a restart of the service. */
  lost: BerthError | undefined;
  readonly #parts: SessionRecordParts;
  #usedTimeMs: number;
  #usedAtMs: number;
  #expiresAt = Number.POSITIVE_INFINITY;
  #cancelTimer: CancelTimer = () => {};

  constructor(init: SessionInit, parts: SessionRecordParts) {
    this.init = init;
    this.bytes = Buffer.byteLength(JSON.stringify([init.config, init.secrets]));
    this.#parts = parts;
    this.#usedTimeMs = init.createTimeMs;
    this.#usedAtMs = parts.time.nowMs();
    const onChange = (): void => {
      this.touch();
      parts.onUse(this);
    };
    this.calls = new SessionCalls(onChange);
    this.views = new SessionViews(onChange);
  }

  get sessionId(): string {
    return this.init.sessionId;
  }

  /** Restarts the TTL. */
  touch(): void {
    this.#usedTimeMs = this.#parts.clock.wallMs();
    this.#usedAtMs = this.#parts.time.nowMs();
    this.#expireIn(this.init.ttlMs);
  }

  /** Continues a session of an earlier run of the service. It expires after `leftMs` unless it is used before. */
  resume({ lastUsedTimeMs, lastUsedAtMs }: LastUse, leftMs: number): void {
    this.state = "ACTIVE";
    this.#usedTimeMs = lastUsedTimeMs;
    this.#usedAtMs = lastUsedAtMs;
    this.#expireIn(leftMs);
  }

  #expireIn(ms: number): void {
    this.#cancelTimer();
    const { clock, onExpiry } = this.#parts;
    const isUsed = this.calls.count > 0 || this.views.count > 0;
    // A call or a view may end after its session has.
    const runsOut = !isUsed && !this.init.temporary && this.state !== "DESTROYING";
    this.#expiresAt = runsOut ? clock.monotonicMs() + ms : Number.POSITIVE_INFINITY;
    this.#cancelTimer = runsOut ? clock.setTimer(ms, () => onExpiry(this)) : () => {};
  }

  /** Cancels the expiry, because it ends anyway. */
  stopTimer(): void {
    this.#cancelTimer();
  }

  get expired(): boolean {
    return this.#expiresAt <= this.#parts.clock.monotonicMs();
  }

  /** When it was last used, in wall time and in service time. */
  get lastUse(): LastUse {
    return { lastUsedTimeMs: this.#usedTimeMs, lastUsedAtMs: this.#usedAtMs };
  }

  view(): SessionView {
    const { type, temporary: _, sandbox: __, ...init } = this.init;
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

  /** What the store keeps about it. @param place where it lives or will live. */
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

/** The error for a session that can no longer be used. */
export function sessionLost({ sessionId }: SessionRecord, why: string): BerthError {
  return new BerthError("SESSION_LOST", `The session ${JSON.stringify(sessionId)} was lost: ${why}.`, {
    metadata: { session_id: sessionId },
  });
}

/** A call on a session, from its arrival to its end. */
export interface SessionCall {
  /** Aborted with `SESSION_LOST` when the call must end now. */
  readonly signal: AbortSignal;
  /**
   * Resolves when it is this call's turn. Calls on one session run one after another, in the order in which they
   * arrived.
   */
  readonly turn: Promise<void>;
  /** Ends the call, so that the next one runs. Idempotent. */
  end(): void;
}

/** The calls on one session, running and waiting. The session does not expire while there are any. */
class SessionCalls {
  readonly #turns = new Turns(1);
  readonly #open = new Set<AbortController>();
  readonly #drained = new Set<() => void>();
  readonly #onChange: () => void;

  /** @param onChange called whenever a call starts or ends. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#open.size;
  }

  /** @throws `TOO_MANY_OPERATIONS` at the limit. */
  begin(): SessionCall {
    if (this.#open.size >= MAX_CALLS) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The session has reached its limit of ${MAX_CALLS} calls. Wait for one to end.`,
        { metadata: { limit: String(MAX_CALLS) } },
      );
    }
    const controller = new AbortController();
    this.#open.add(controller);
    this.#onChange();
    const { promise: turn, resolve: start } = Promise.withResolvers<void>();
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const leaveQueue = this.#turns.take(() => {
      start();
      return over;
    });
    return {
      signal: controller.signal,
      turn,
      end: () => {
        if (!this.#open.delete(controller)) return;
        leaveQueue();
        end();
        this.#onChange();
        if (this.#open.size > 0) return;
        for (const resolve of this.#drained) resolve();
        this.#drained.clear();
      },
    };
  }

  abortAll(reason: BerthError): void {
    for (const controller of this.#open) controller.abort(reason);
  }

  /** Resolves when no calls are left. */
  async drained(): Promise<void> {
    if (this.#open.size === 0) return;
    await new Promise<void>((resolve) => this.#drained.add(resolve));
  }
}

/** A view of a session, from its start to its end. */
export interface OpenView extends Disposable {
  /** Aborted with `SESSION_LOST` when there is nothing left to see. */
  readonly signal: AbortSignal;
}

/** The views of one session. The session does not expire while there are any. */
class SessionViews {
  readonly #open = new Set<AbortController>();
  readonly #onChange: () => void;

  /** @param onChange called whenever a view starts or ends. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#open.size;
  }

  /** Opens a view. Dispose of it when the viewer ends. @throws `TOO_MANY_OPERATIONS` at the limit. */
  begin(): OpenView {
    if (this.#open.size >= MAX_VIEWS) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The session has reached its limit of ${MAX_VIEWS} views. Close one of them.`,
        { metadata: { limit: String(MAX_VIEWS) } },
      );
    }
    const controller = new AbortController();
    this.#open.add(controller);
    this.#onChange();
    return {
      signal: controller.signal,
      [Symbol.dispose]: () => {
        if (this.#open.delete(controller)) this.#onChange();
      },
    };
  }

  abortAll(reason: BerthError): void {
    for (const controller of this.#open) controller.abort(reason);
  }
}
