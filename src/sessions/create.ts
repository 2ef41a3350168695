import { randomBytes } from "node:crypto";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";
import type { SessionBackend } from "./backend.ts";
import { type SessionPlace, type SessionRecord, sessionLost } from "./record.ts";
import type { SessionNames } from "./session.ts";
import type { SessionJournal } from "./store.ts";

/** Where a workspace appears in a session's sandbox. */
const WORKSPACE_TARGET = "/workspace";
/**
 * A sandbox that is a session's own goes with it. Where that should fail, it
 * goes for want of use, this much later than the session would have.
 */
const OUTLIVES_MS = 60_000;
/** As long as a duration may be. */
const MAX_MS = 24 * 24 * 3600 * 1000;

/** Brings what stands behind a session into being, and takes it away. */
export class SessionMaker {
  readonly #sandboxes: SandboxManager;
  readonly #journal: SessionJournal;

  constructor(sandboxes: SandboxManager, journal: SessionJournal) {
    this.#sandboxes = sandboxes;
    this.#journal = journal;
  }

  /** Makes the sandbox of a session's own. It is kept as that before there is anything of it. */
  async makeSandbox(record: SessionRecord, signal: AbortSignal): Promise<SessionPlace> {
    const { owner, sessionId, type, ttlMs, workspaceId } = record.init;
    const spec: RequestedSpec = {
      ...type.sandbox,
      labels: { session_id: sessionId.slice(0, 255) },
      idleTimeoutMs: Math.min(ttlMs + OUTLIVES_MS, MAX_MS),
      ...(workspaceId !== "" && {
        mounts: [{ source: { kind: "workspace", workspaceId }, target: WORKSPACE_TARGET, readOnly: false }],
      }),
    };
    const placeOf = ({ sandboxId, generation }: { sandboxId: string; generation: number }): SessionPlace => ({
      sandbox: { owner, sandboxId, generation },
      owned: true,
    });
    const keepWith = (sandbox: { sandboxId: string; generation: number }): void =>
      this.#journal.keep(record.stored(placeOf(sandbox)));
    return placeOf(await this.#sandboxes.create(owner, spec, { signal, keepWith }));
  }

  /** The sandbox that a session is to live in. @throws `SANDBOX_NOT_FOUND`, `SANDBOX_REPLACED`, `SANDBOX_NOT_RUNNING`. */
  findSandbox(owner: string, asked: { sandboxId: string; generation?: number }): SessionPlace {
    using lease = this.#sandboxes.acquire({ owner, ...asked });
    const { sandboxId, generation } = lease.sandbox;
    return { sandbox: { owner, sandboxId, generation }, owned: false };
  }

  /** Why a session can be used no more: its sandbox is gone. Undefined where it is there, or is yet to be made. */
  lossOf(record: SessionRecord): BerthError | undefined {
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

  /** Initializes the resource of a session in its sandbox. */
  async initialize(record: SessionRecord, place: SessionPlace, signal: AbortSignal): Promise<SessionBackend> {
    const { type, config, workerId, sessionId } = record.init;
    using lease = this.#sandboxes.acquire(place.sandbox);
    const both = AbortSignal.any([signal, lease.signal]);
    const host = { workerId, sessionId, sandbox: lease.sandbox, name: place.sandbox };
    const resource = await type.initialize(host, config, both);
    if (both.aborted) await resource.cleanup(false);
    throwIfAborted(both);
    return resource;
  }

  /** Cleans up a session's resource and deletes its own sandbox. Both are tried; returns what failed. */
  async takeAway(record: SessionRecord): Promise<unknown> {
    const { resource, place } = record;
    let failure: unknown;
    const note = (error: unknown): void => {
      failure ??= error;
    };
    // What is inside a sandbox goes with it.
    if (place?.owned) {
      await Promise.all([
        this.#sandboxes.delete(place.sandbox, 0).catch(note),
        resource?.cleanup(true).catch(note),
      ]);
    } else await resource?.cleanup(false).catch(note);
    return failure;
  }
}

const LAST_NUMBER = 999;

/** Names sessions. Names and ids are shown and compared, and never a path. */
export class SessionNamer {
  /** How many sessions of a type each worker has had, since the service began. */
  readonly #counts = new Map<string, number>();

  readonly #limit: number;

  /** @param limit how many workers' counts are kept; the oldest begin anew. */
  constructor(limit = 10_000) {
    this.#limit = limit;
  }

  next(owner: string, workerId: string, type: string, customName: string): SessionNames {
    const key = JSON.stringify([owner, workerId, type]);
    const number = ((this.#counts.get(key) ?? 0) % LAST_NUMBER) + 1;
    this.#counts.delete(key);
    this.#counts.set(key, number);
    if (this.#counts.size > this.#limit) {
      const oldest = this.#counts.keys().next();
      if (!oldest.done) this.#counts.delete(oldest.value);
    }
    const parts = [type, workerId, String(number).padStart(3, "0"), ...(customName ? [customName] : [])];
    const name = parts.join("_");
    return { name, sessionId: `${name}_${randomBytes(4).toString("hex")}` };
  }
}
