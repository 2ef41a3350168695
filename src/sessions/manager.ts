import { within } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { Logger } from "../base/logger.ts";
import { type Slice, type Sliced, WHOLE } from "../base/ordered-index.ts";
import type { ProcessControl } from "../processes/control.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import { NO_PROGRESS, type RequestProgress } from "../state/request-log.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { SessionBackend } from "./backend.ts";
import { checkSecrets, customNameOf, parseConfig, SessionCreator } from "./create.ts";
import { SessionEnder } from "./end.ts";
import { SessionExecutor, type SessionUse } from "./execute.ts";
import { SessionPlaces } from "./places.ts";
import {
  MAX_CALLS,
  type OpenView,
  type SessionInit,
  type SessionPlace,
  SessionRecord,
  sessionLost,
} from "./record.ts";
import { recoverSessions } from "./recover.ts";
import { keyOf, type SessionKey, SessionRegistry } from "./registry.ts";
import type { Reinitialized, RequestedSession, SessionResult, SessionView } from "./session.ts";
import { SessionJournal, type SessionStore, USE_KEPT_EVERY_MS } from "./store.ts";
import type { ToolCatalog } from "./tool-catalog.ts";

export interface SessionManagerSettings {
  /** How long a session lives after its last call, unless its creator sets it. */
  readonly sessionTtlMs: number;
  /** How long the end of a session waits for running calls, unless its caller sets it. */
  readonly deleteGraceMs: number;
}

/** A session with an open view. Dispose of `view` when the viewer ends. */
export interface ViewedSession {
  readonly sessionId: string;
  readonly backend: SessionBackend;
  readonly sandbox: SandboxName & { readonly generation: number };
  readonly view: OpenView;
}

interface SessionManagerParts {
  readonly catalog: ToolCatalog;
  readonly sandboxes: SandboxManager;
  /** Default: no tenant has a quota. */
  readonly quotas?: TenantQuotas;
  readonly control: Pick<ProcessControl, "isEnding">;
  readonly store: SessionStore;
  readonly writeBehind: WriteBehind;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Creates, finds, uses, expires and ends sessions.
 *
 * Changes to a session (create, reinitialize, destroy, expiry) hold the lock of its owner, worker and type, also during
 * the backend's initialize and cleanup. No other session waits for that, and only a limited number of calls do. Calls
 * take the lock only to find the session and to join its queue. A temporary session is known only to its call.
 */
export class SessionManager {
  readonly #settings: SessionManagerSettings;
  readonly #catalog: ToolCatalog;
  readonly #sandboxes: SandboxManager;
  readonly #journal: SessionJournal;
  readonly #clock: Clock;
  readonly #time: ServiceTime;
  readonly #creator: SessionCreator;
  readonly #ender: SessionEnder;
  readonly #executor: SessionExecutor;
  readonly #locks = new KeyedLock();
  readonly #registry = new SessionRegistry();
  readonly #places: SessionPlaces;
  readonly #closing = new AbortController();

  constructor(settings: SessionManagerSettings, parts: SessionManagerParts) {
    this.#settings = settings;
    this.#catalog = parts.catalog;
    this.#sandboxes = parts.sandboxes;
    this.#journal = new SessionJournal(parts);
    this.#clock = parts.clock;
    this.#time = parts.time;
    this.#places = new SessionPlaces(parts.quotas ?? new TenantQuotas(parts.clock));
    const common = { ...parts, journal: this.#journal, places: this.#places };
    this.#creator = new SessionCreator({ ...common, defaultTtlMs: settings.sessionTtlMs });
    this.#ender = new SessionEnder({ ...common, registry: this.#registry });
    this.#executor = new SessionExecutor({ ...parts, creator: this.#creator, ender: this.#ender });
  }

  /**
   * Recovers the stored sessions, after the sandboxes have recovered. Sessions with a live sandbox continue, and get a
   * new backend at their next call. The others end, and the next call on them says so.
   */
  async recover(): Promise<void> {
    const newRecord = (init: SessionInit): SessionRecord => this.#record(init);
    const recovered = recoverSessions(this.#journal.load(), newRecord, {
      catalog: this.#catalog,
      sandboxes: this.#sandboxes,
      time: this.#time,
      slackMs: USE_KEPT_EVERY_MS,
    });
    for (const { record, isLeftover } of recovered) {
      if (isLeftover) {
        this.#places.recover(record);
        this.#ender.track(this.#ender.end(record, 0));
        continue;
      }
      // The end of an older one was cut short.
      const older = this.#registry.get(keyOf(record));
      if (older !== undefined) this.#ender.endLater(older);
      this.#registry.add(record);
      if (record.lost === undefined) {
        this.#places.recover(record);
        continue;
      }
      for (const surplus of this.#registry.lose(record)) {
        this.#registry.remove(surplus);
        // End it before the next is read, so that they never take more memory than those that are kept.
        await this.#ender.end(surplus, 0);
      }
    }
  }

  /** Call this when a sandbox is ending. Its sessions no longer count, and the next call on each reports the loss. */
  sandboxEnds(sandbox: SessionPlace["sandbox"]): void {
    for (const record of this.#places.vacate(sandbox)) this.#lose(record);
  }

  /**
   * Creates a session of each requested type, concurrently. An existing one stays as it is and is refreshed; one whose
   * sandbox is gone is replaced. Failures are results, and leave nothing behind.
   */
  async create(
    owner: string,
    workerId: string,
    asked: readonly RequestedSession[],
    signal: AbortSignal,
  ): Promise<SessionResult[]> {
    this.#assertOpen();
    return Promise.all(
      asked.map(async (session): Promise<SessionResult> => {
        const { resourceType } = session;
        try {
          return { resourceType, ...(await this.#createOne(owner, workerId, session, signal)) };
        } catch (failure) {
          throwIfAborted(signal);
          return { resourceType, status: "FAILED", failure };
        }
      }),
    );
  }

  /**
   * Runs `work` on the worker's session of a type when it is the call's turn, or on a temporary session that ends with
   * the call.
   * @throws `SESSION_LOST` if the session ends in the meantime or its sandbox is gone, `TOO_MANY_OPERATIONS`; for a
   *   temporary session, what {@link create} may fail with; and what `work` throws.
   * @param timeoutMs how long the call may last. Default: the sandbox's command timeout.
   */
  async withSession<T>(
    key: SessionKey,
    signal: AbortSignal,
    work: (use: SessionUse) => Promise<T>,
    timeoutMs?: number,
  ): Promise<T> {
    this.#assertOpen();
    const found = await this.#locked(key, signal, async () => {
      const record = this.#live(key);
      return record && { record, call: record.calls.begin() };
    });
    if (found === undefined) return this.#withTemporary(key, signal, work, timeoutMs);
    const { record, call } = found;
    try {
      return await this.#executor.run(record, call, signal, work, timeoutMs);
    } finally {
      call.end();
    }
  }

  /**
   * Opens a view of the worker's session of a type. Starts a new backend if the old one was lost. Does not queue: calls
   * continue meanwhile.
   * @throws `INVALID_ARGUMENT` for an unknown type, `SESSION_NOT_FOUND`, `SESSION_LOST`, `TOO_MANY_OPERATIONS`.
   */
  async openView(key: SessionKey, signal: AbortSignal): Promise<ViewedSession> {
    this.#assertOpen();
    const type = this.#catalog.type("resource_type", key.resourceType);
    const { record, opened, call } = await this.#locked(key, signal, async () => {
      const record = this.#live(key);
      if (record === undefined) throw noSession(key);
      if (this.#lossOf(record) === undefined && record.backend?.alive)
        return { record, opened: record.views.begin() };
      return { record, call: record.calls.begin() };
    });
    try {
      const work = async () => record.views.begin();
      const view = opened ?? (await this.#executor.run(record, call, signal, work, undefined));
      const { backend, place, sessionId } = record;
      // A session has both while it has a view that is not aborted.
      if (backend === undefined || place === undefined) throw sessionLost(record, `it has no ${type.name}`);
      return { sessionId, backend, sandbox: place.sandbox, view };
    } finally {
      call?.end();
    }
  }

  /**
   * Restarts the TTL of sessions and the idle time of their sandboxes. @param types empty: all types that the worker
   * has.
   */
  async refresh(
    owner: string,
    workerId: string,
    types: readonly string[],
    signal: AbortSignal,
  ): Promise<SessionResult[]> {
    return this.#each(owner, workerId, types, signal, async (key) => {
      const record = this.#live(key);
      if (record === undefined || this.#lossOf(record) !== undefined)
        return { resourceType: key.resourceType, status: "NOT_FOUND" };
      this.#refresh(record);
      return { resourceType: key.resourceType, status: "REFRESHED", session: record.view() };
    });
  }

  /**
   * Ends the worker's session of a type, if there is one, and creates another with the same custom name, workspace or
   * sandbox, and TTL.
   * A `config` or `secrets` that is undefined stays as it is. A custom name in the config replaces the old one.
   * @param progress of the request, which replaces no later session.
   * @throws `INVALID_ARGUMENT`, `NO_SPACE`, before it changes anything.
   */
  async reinitialize(
    key: SessionKey,
    { config, secrets }: Pick<RequestedSession, "config" | "secrets">,
    graceMs: number | undefined,
    signal: AbortSignal,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<Reinitialized> {
    this.#assertOpen();
    const type = this.#catalog.type("resource_type", key.resourceType);
    if (config !== undefined) parseConfig(type, config);
    checkSecrets(type, secrets);
    return this.#locked(key, signal, async () => {
      const old = this.#live(key);
      const oldSessionId = old?.sessionId ?? "";
      if (progress.subject !== undefined) {
        const [endedId, madeId] = JSON.parse(progress.subject) as [string, string];
        if (old?.sessionId === madeId) return { oldSessionId: endedId, session: old.view() };
        if (oldSessionId !== endedId) return { oldSessionId: endedId, failure: interrupted(endedId) };
      }
      const init = old?.init;
      const asked: RequestedSession = {
        resourceType: type.name,
        config: config ?? init?.config,
        customName: customNameOf(config ?? {}) || (init?.customName ?? ""),
        sandbox: init?.sandbox,
        workspaceId: init?.workspaceId ?? "",
        ttlMs: init?.ttlMs,
        secrets: secrets ?? init?.secrets,
      };
      const next = this.#creator.init(key, type, asked, false);
      progress.begin(JSON.stringify([oldSessionId, next.sessionId]));
      if (old !== undefined) await this.#ender.end(old, graceMs ?? this.#settings.deleteGraceMs);
      try {
        const record = await this.#make(next, signal);
        return { oldSessionId, session: record.view() };
      } catch (failure) {
        return { oldSessionId, failure };
      }
    });
  }

  /** Sessions of an owner, newest first. */
  list(
    owner: string,
    filter: { readonly workerId: string | undefined; readonly types: ReadonlySet<string> },
    slice: Slice = WHOLE,
  ): Sliced<SessionView> {
    const usable = (record: SessionRecord): boolean => !record.expired && this.#lossOf(record) === undefined;
    const { items, next } = this.#registry.list(owner, filter, slice, usable);
    return { items: items.map((record) => record.view()), next };
  }

  /**
   * Ends sessions, and returns when they are gone. Continues when its caller leaves.
   * @param types empty: all types that the worker has.
   * @param progress of the request, which ends no later session of a type.
   */
  async destroy(
    owner: string,
    workerId: string,
    types: readonly string[],
    graceMs = this.#settings.deleteGraceMs,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<SessionResult[]> {
    /** Of each type, the session that the request ends. */
    const ended = new Map(JSON.parse(progress.subject ?? "[]") as [type: string, sessionId: string][]);
    return this.#each(owner, workerId, types, undefined, async (key) => {
      const { resourceType } = key;
      const record = this.#live(key);
      const sessionId = ended.get(resourceType) ?? record?.sessionId;
      if (record === undefined || record.sessionId !== sessionId)
        return { resourceType, status: "NOT_FOUND" };
      ended.set(resourceType, sessionId);
      try {
        progress.begin(JSON.stringify([...ended]));
      } catch {
        // A session ends even if nothing can be stored.
      }
      const session = record.view();
      const failure = await this.#ender.end(record, graceMs);
      return { resourceType, status: "DESTROYED", session, failure };
    });
  }

  /**
   * Accepts no more work, aborts running calls, completes what outlives the sessions, and waits up to `timeoutMs` for
   * that and for every cleanup. Deletes no sandboxes: sessions end with their sandboxes, unless those are left running.
   */
  async shutdown({ leave, timeoutMs }: { leave: boolean; timeoutMs: number }): Promise<void> {
    this.#closing.abort(shuttingDown());
    for (const record of this.#registry.all()) {
      record.stopTimer();
      record.calls.abortAll(shuttingDown());
      record.views.abortAll(shuttingDown());
      this.#ender.track(this.#ender.finish(record));
      if (leave) this.#journal.keepLastUse(record);
      else this.#journal.forget(record.sessionId);
    }
    await within(this.#ender.settled(), timeoutMs, this.#clock);
  }

  async #createOne(owner: string, workerId: string, asked: RequestedSession, signal: AbortSignal) {
    const type = this.#catalog.type("resource_type", asked.resourceType);
    const key = { owner, workerId, resourceType: type.name };
    const init = this.#creator.init(key, type, asked, false);
    return this.#locked(key, signal, async () => {
      const existing = this.#live(key);
      if (existing !== undefined && this.#lossOf(existing) === undefined) {
        this.#refresh(existing);
        return { status: "EXISTS" as const, session: existing.view() };
      }
      if (existing !== undefined) await this.#ender.end(existing, 0);
      const record = await this.#make(init, signal);
      return { status: "CREATED" as const, session: record.view() };
    });
  }

  async #withTemporary<T>(
    key: SessionKey,
    callerSignal: AbortSignal,
    work: (use: SessionUse) => Promise<T>,
    timeoutMs: number | undefined,
  ): Promise<T> {
    const type = this.#catalog.type("tool", key.resourceType);
    const asked = {
      config: {},
      customName: "",
      sandbox: undefined,
      workspaceId: "",
      ttlMs: undefined,
      secrets: undefined,
    };
    return this.#whileOpen(callerSignal, async (signal) => {
      const record = await this.#make(this.#creator.init(key, type, asked, true), signal);
      const call = record.calls.begin();
      try {
        return await this.#executor.run(record, call, signal, work, timeoutMs);
      } finally {
        call.end();
        // The caller does not wait for the cleanup; a shutdown does.
        this.#ender.track(this.#ender.end(record, 0));
      }
    });
  }

  /** Runs work that a shutdown aborts and waits for. The work must leave nothing behind once its signal is aborted. */
  async #whileOpen<T>(callerSignal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const running = work(AbortSignal.any([callerSignal, this.#closing.signal]));
    this.#ender.track(running.catch(() => {}));
    return running;
  }

  #record(init: SessionInit): SessionRecord {
    return new SessionRecord(init, {
      clock: this.#clock,
      time: this.#time,
      onExpiry: (record) => this.#ender.track(this.#expire(record)),
      onUse: (record) => this.#onUse(record),
    });
  }

  /** Creates a session. The caller holds the lock of its key, unless the session is temporary. */
  async #make(init: SessionInit, callerSignal: AbortSignal): Promise<SessionRecord> {
    const record = this.#record(init);
    this.#creator.reserve(record);
    if (!init.temporary) this.#registry.add(record);
    return this.#whileOpen(callerSignal, async (signal) => {
      try {
        const place = await this.#creator.create(record, signal);
        if (!init.temporary) this.#journal.keep(record.stored(place));
        return record;
      } catch (error) {
        const ended = this.#ender.end(record, 0);
        if (init.temporary) this.#ender.track(ended);
        else await ended;
        throw error;
      }
    });
  }

  /** The usable session of a key. Ends it if it has expired. The caller holds the lock of the key. */
  #live(key: SessionKey): SessionRecord | undefined {
    const record = this.#registry.get(key);
    if (record === undefined || !record.expired) return record;
    this.#registry.remove(record);
    this.#ender.track(this.#ender.end(record, 0));
    return undefined;
  }

  /**
   * Why a session can no longer be used: its sandbox is gone. Undefined if the sandbox exists or is still being
   * created.
   */
  #lossOf(record: SessionRecord): BerthError | undefined {
    const { lost, place } = record;
    if (lost !== undefined || place === undefined) return lost;
    try {
      const { state } = this.#sandboxes.get(place.sandbox);
      if (state !== "DELETING" && state !== "TERMINATED") return undefined;
    } catch (error) {
      if (!(error instanceof BerthError)) throw error;
    }
    return sessionLost(record, "its sandbox is gone");
  }

  /** Keeps a session whose sandbox has ended, without its backend, for its next call. */
  #lose(record: SessionRecord): void {
    const ends = record.init.temporary || record.state === "DESTROYING";
    if (ends || this.#closing.signal.aborted) return;
    for (const surplus of this.#registry.lose(record)) this.#ender.endLater(surplus);
    const name = SessionRegistry.lockOf(keyOf(record));
    this.#ender.track(this.#locks.run(name, () => this.#ender.dropBackend(record)));
  }

  async #expire(record: SessionRecord): Promise<void> {
    await this.#locks.run(SessionRegistry.lockOf(keyOf(record)), async () => {
      if (!record.expired || this.#registry.get(keyOf(record)) !== record) return;
      await this.#ender.end(record, 0, "expired");
    });
  }

  #onUse(record: SessionRecord): void {
    if (!record.init.temporary && record.state === "ACTIVE") this.#journal.used(record);
  }

  /** Restarts the session's TTL and its sandbox's idle time. */
  #refresh(record: SessionRecord): void {
    record.touch();
    this.#onUse(record);
    try {
      if (record.place !== undefined) this.#sandboxes.keepAlive(record.place.sandbox);
    } catch (error) {
      // The next call reports the problem.
      if (!(error instanceof BerthError)) throw error;
    }
  }

  #each(
    owner: string,
    workerId: string,
    types: readonly string[],
    signal: AbortSignal | undefined,
    act: (key: SessionKey) => Promise<SessionResult>,
  ): Promise<SessionResult[]> {
    const asked = types.length > 0 ? types : this.#registry.typesOf(owner, workerId);
    return Promise.all(
      asked.map((resourceType) => {
        const key = { owner, workerId, resourceType };
        return this.#locked(key, signal, () => act(key));
      }),
    );
  }

  /**
   * Runs what a caller asked for while holding the lock of a key.
   * @param signal ends the wait for the lock. Undefined: nothing does.
   * @throws `TOO_MANY_OPERATIONS` if too many wait for it already.
   */
  #locked<T>(key: SessionKey, signal: AbortSignal | undefined, action: () => Promise<T>): Promise<T> {
    const name = SessionRegistry.lockOf(key);
    if (this.#locks.usersOf(name) > MAX_CALLS) throw tooManyWait(key);
    return this.#locks.run(name, action, signal);
  }

  #assertOpen(): void {
    if (this.#closing.signal.aborted) throw shuttingDown();
  }
}

function noSession({ workerId, resourceType }: SessionKey): BerthError {
  return new BerthError(
    "SESSION_NOT_FOUND",
    `The worker ${JSON.stringify(workerId)} has no session of the type ${resourceType}, or it expired. Create one first.`,
    { metadata: { worker_id: workerId, resource_type: resourceType } },
  );
}

function interrupted(sessionId: string): BerthError {
  return new BerthError(
    "SESSION_LOST",
    "The end of the server interrupted this request, and the worker's session is now gone or another one. List the sessions, and create one under a new request_id if there is none.",
    { metadata: { session_id: sessionId } },
  );
}

function tooManyWait({ workerId, resourceType }: SessionKey): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    `${MAX_CALLS} calls already wait for the session of the worker ${JSON.stringify(workerId)} of the type ${resourceType} to start or end. Wait for one of them.`,
    { metadata: { limit: String(MAX_CALLS) } },
  );
}

function shuttingDown(): BerthError {
  return new BerthError("SHUTTING_DOWN", "The server is shutting down.");
}
