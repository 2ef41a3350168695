import { within } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { Logger } from "../base/logger.ts";
import { type Slice, type Sliced, WHOLE } from "../base/ordered-index.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { SessionBackend } from "./backend.ts";
import { checkSecrets, customNameOf, parseConfig, SessionCreator } from "./create.ts";
import { SessionEnder } from "./end.ts";
import { SessionExecutor, type SessionUse } from "./execute.ts";
import { type SessionInit, SessionRecord, sessionLost } from "./record.ts";
import { recoverSessions } from "./recover.ts";
import { keyOf, type SessionKey, SessionRegistry } from "./registry.ts";
import type { Reinitialized, RequestedSession, SessionResult, SessionView } from "./session.ts";
import type { SessionStore } from "./store.ts";
import { SessionJournal, USE_KEPT_EVERY_MS } from "./store.ts";
import type { ToolCatalog } from "./tool-catalog.ts";
import type { OpenView } from "./views.ts";

/** How the manager is set up. */
export interface SessionManagerSettings {
  /** How long a session lives after its last call, unless its creator says. */
  readonly sessionTtlMs: number;
  /** How long an end lets calls under way run, unless its caller says. */
  readonly deleteGraceMs: number;
}

/** A session that is viewed. Dispose of its view when that ends. */
export interface ViewedSession {
  readonly sessionId: string;
  readonly backend: SessionBackend;
  readonly sandbox: SandboxName & { readonly generation: number };
  readonly view: OpenView;
}

/** What the manager is built of. */
export interface SessionManagerParts {
  readonly catalog: ToolCatalog;
  readonly sandboxes: SandboxManager;
  readonly store: SessionStore;
  readonly writeBehind: WriteBehind;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Creates, finds, executes on, expires and ends sessions.
 *
 * What changes a session (create, reinitialize, destroy, expiry) happens under
 * the lock of its owner, worker and type, the backend's initialize and cleanup
 * included; no other session waits for that. Calls take the lock only to find
 * the session and to queue for their turn on it. Only its call knows a
 * temporary session.
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
  readonly #closing = new AbortController();

  constructor(settings: SessionManagerSettings, parts: SessionManagerParts) {
    this.#settings = settings;
    this.#catalog = parts.catalog;
    this.#sandboxes = parts.sandboxes;
    this.#journal = new SessionJournal(parts);
    this.#clock = parts.clock;
    this.#time = parts.time;
    const common = { ...parts, journal: this.#journal };
    this.#creator = new SessionCreator({ ...common, defaultTtlMs: settings.sessionTtlMs });
    this.#ender = new SessionEnder({ ...common, registry: this.#registry });
    this.#executor = new SessionExecutor(parts.sandboxes, this.#creator, this.#ender, parts.clock);
  }

  /**
   * Recovers the sessions in the store, once the sandboxes have recovered: those
   * whose sandbox lives go on, with a new backend from the next call on; the
   * others end, and the next call on them says so.
   */
  recover(): void {
    const newRecord = (init: SessionInit): SessionRecord => this.#record(init);
    const { records, leftovers } = recoverSessions(this.#journal.load(), newRecord, {
      catalog: this.#catalog,
      sandboxes: this.#sandboxes,
      time: this.#time,
      slackMs: USE_KEPT_EVERY_MS,
    });
    for (const record of records) this.#registry.add(record);
    for (const record of leftovers) this.#ender.track(this.#ender.end(record, 0));
  }

  /**
   * Creates a session of each type asked for, concurrently. One that is there
   * already is kept as it is and refreshed; one whose sandbox is gone is replaced.
   * A failure is a result, and leaves nothing.
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
   * Runs `work` on the worker's session of a type when it is its turn, or on a
   * temporary session that ends with the call.
   * @throws `SESSION_LOST` where the session is ended meanwhile or its sandbox is gone, `TOO_MANY_OPERATIONS`; for a
   *   temporary session what {@link create} may fail with; and what `work` throws.
   * @param timeoutMs how long the call may last. Default: the sandbox's command timeout.
   */
  async withSession<T>(
    key: SessionKey,
    signal: AbortSignal,
    work: (use: SessionUse) => Promise<T>,
    timeoutMs?: number,
  ): Promise<T> {
    this.#assertOpen();
    const found = await this.#locked(key, async () => {
      throwIfAborted(signal);
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
   * Opens a view of the worker's session of a type: of its backend as it is, or
   * of a new one where that is lost. It takes no turn: calls go on meanwhile.
   * @throws `INVALID_ARGUMENT` for an unknown type, `SESSION_NOT_FOUND`, `SESSION_LOST`, `TOO_MANY_OPERATIONS`.
   */
  async openView(key: SessionKey, signal: AbortSignal): Promise<ViewedSession> {
    this.#assertOpen();
    const type = this.#catalog.type("resource_type", key.resourceType);
    const { record, opened, call } = await this.#locked(key, async () => {
      throwIfAborted(signal);
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
      // It has both while it has views that are not aborted.
      if (backend === undefined || place === undefined) throw sessionLost(record, `it has no ${type.name}`);
      return { sessionId, backend, sandbox: place.sandbox, view };
    } finally {
      call?.end();
    }
  }

  /** Restarts the time to live of sessions and the idle time of their sandboxes. @param types empty: all that the worker has. */
  async refresh(owner: string, workerId: string, types: readonly string[]): Promise<SessionResult[]> {
    return this.#each(owner, workerId, types, async (key) => {
      const record = this.#live(key);
      if (record === undefined || this.#lossOf(record) !== undefined)
        return { resourceType: key.resourceType, status: "NOT_FOUND" };
      this.#refresh(record);
      return { resourceType: key.resourceType, status: "REFRESHED", session: record.view() };
    });
  }

  /**
   * Ends the worker's session of a type, where there is one, and creates another
   * in its place: same custom name, workspace or sandbox and time to live.
   * @param changed what is undefined in it stays as it is. A custom name in the config replaces the old one.
   * @throws `INVALID_ARGUMENT`, before anything is touched.
   */
  async reinitialize(
    key: SessionKey,
    { config, secrets }: Pick<RequestedSession, "config" | "secrets">,
    graceMs: number | undefined,
    signal: AbortSignal,
  ): Promise<Reinitialized> {
    this.#assertOpen();
    const type = this.#catalog.type("resource_type", key.resourceType);
    if (config !== undefined) parseConfig(type, config);
    checkSecrets(type, secrets);
    return this.#locked(key, async () => {
      throwIfAborted(signal);
      const old = this.#live(key);
      const { place, init } = old ?? {};
      const asked: RequestedSession = {
        resourceType: type.name,
        config: config ?? init?.config,
        customName: customNameOf(config ?? {}) || (init?.customName ?? ""),
        sandbox: place?.owned === false ? { sandboxId: place.sandbox.sandboxId } : undefined,
        workspaceId: init?.workspaceId ?? "",
        ttlMs: init?.ttlMs,
        secrets: secrets ?? init?.secrets,
      };
      const next = this.#creator.init(key, type, asked, false);
      if (old !== undefined) await this.#ender.end(old, graceMs ?? this.#settings.deleteGraceMs);
      const oldSessionId = old?.sessionId ?? "";
      try {
        const record = await this.#make(next, asked.sandbox, signal);
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

  /** Ends sessions; returns when they are gone. @param types empty: all that the worker has. */
  async destroy(
    owner: string,
    workerId: string,
    types: readonly string[],
    graceMs = this.#settings.deleteGraceMs,
  ): Promise<SessionResult[]> {
    return this.#each(owner, workerId, types, async (key) => {
      const record = this.#live(key);
      if (record === undefined) return { resourceType: key.resourceType, status: "NOT_FOUND" };
      const session = record.view();
      const failure = await this.#ender.end(record, graceMs);
      return { resourceType: key.resourceType, status: "DESTROYED", session, failure };
    });
  }

  /**
   * Takes no more work, aborts what is under way, completes what outlives the sessions
   * and waits for that and every cleanup, up to `timeoutMs`. It deletes no sandboxes: unless these are left running, the
   * sessions end with them.
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
    return this.#locked(key, async () => {
      throwIfAborted(signal);
      const existing = this.#live(key);
      if (existing !== undefined && this.#lossOf(existing) === undefined) {
        this.#refresh(existing);
        return { status: "EXISTS" as const, session: existing.view() };
      }
      if (existing !== undefined) await this.#ender.end(existing, 0);
      const record = await this.#make(init, asked.sandbox, signal);
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
      const record = await this.#make(this.#creator.init(key, type, asked, true), undefined, signal);
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

  /** Runs work that leaves nothing once its signal is aborted: a shutdown aborts it, and waits for it. */
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

  /** Creates a session. The lock of its key is held, unless it is temporary. */
  async #make(
    init: SessionInit,
    sandbox: RequestedSession["sandbox"],
    callerSignal: AbortSignal,
  ): Promise<SessionRecord> {
    const record = this.#record(init);
    if (!init.temporary) this.#registry.add(record);
    return this.#whileOpen(callerSignal, async (signal) => {
      try {
        const place = await this.#creator.create(record, sandbox, signal);
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

  /** The session of a key that may be used. Ends one that has expired. The lock of the key is held. */
  #live(key: SessionKey): SessionRecord | undefined {
    const record = this.#registry.get(key);
    if (record === undefined || !record.expired) return record;
    this.#registry.remove(record);
    this.#ender.track(this.#ender.end(record, 0));
    return undefined;
  }

  /** Why a session can be used no more: its sandbox is gone. Undefined where it is there, or not made yet. */
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

  async #expire(record: SessionRecord): Promise<void> {
    await this.#locked(keyOf(record), async () => {
      if (!record.expired || this.#registry.get(keyOf(record)) !== record) return;
      await this.#ender.end(record, 0);
    });
  }

  #onUse(record: SessionRecord): void {
    if (!record.init.temporary && record.state === "ACTIVE") this.#journal.used(record);
  }

  /** Restarts its time to live and its sandbox's idle time. */
  #refresh(record: SessionRecord): void {
    record.touch();
    this.#onUse(record);
    try {
      if (record.place !== undefined) this.#sandboxes.keepAlive(record.place.sandbox);
    } catch (error) {
      // The next call reports what is wrong with it.
      if (!(error instanceof BerthError)) throw error;
    }
  }

  #each(
    owner: string,
    workerId: string,
    types: readonly string[],
    act: (key: SessionKey) => Promise<SessionResult>,
  ): Promise<SessionResult[]> {
    const asked = types.length > 0 ? types : this.#registry.typesOf(owner, workerId);
    return Promise.all(
      asked.map((resourceType) => {
        const key = { owner, workerId, resourceType };
        return this.#locked(key, () => act(key));
      }),
    );
  }

  #locked<T>(key: SessionKey, action: () => Promise<T>): Promise<T> {
    return this.#locks.run(SessionRegistry.lockOf(key), action);
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

function shuttingDown(): BerthError {
  return new BerthError("SHUTTING_DOWN", "The server is shutting down.");
}
