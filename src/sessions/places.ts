import { BerthError } from "../base/errors.ts";
import { compositeKey } from "../base/ids.ts";
import type { Reservation } from "../sandboxes/capacity.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import type { SessionPlace, SessionRecord } from "./record.ts";

/** Sessions of one sandbox, those being created and ended included. */
const MAX_SESSIONS = 256;
/** Size of their configs and secrets' names. */
const MAX_BYTES = 4 * 1024 * 1024;

type SandboxOfSession = SessionPlace["sandbox"];

/**
 * Limits how many sessions a sandbox has, how large they are together, and how many a tenant has. A session counts from
 * before anything is created for it until it is cleaned up or its sandbox ends. A temporary session does not count for
 * its tenant: it has a sandbox of its own, and ends with its call.
 */
export class SessionPlaces {
  readonly #quotas: TenantQuotas;
  readonly #bySandbox = new Map<string, Set<SessionRecord>>();
  readonly #shares = new Map<SessionRecord, Reservation>();

  constructor(quotas: TenantQuotas) {
    this.#quotas = quotas;
  }

  /**
   * Reserves what a new session takes, until {@link release}. Call {@link enter} once it has a sandbox of its own.
   * @throws `TOO_MANY_OPERATIONS` if the given sandbox has reached its limit; `TENANT_QUOTA`.
   */
  reserve(record: SessionRecord): void {
    const { place, init } = record;
    if (place !== undefined) this.#assertRoom(place.sandbox, record);
    if (!init.temporary) this.#shares.set(record, this.#quotas.reserveSession(init.owner));
    this.enter(record);
  }

  /** Counts a session that already exists, even beyond the limits. */
  recover(record: SessionRecord): void {
    const { owner, temporary } = record.init;
    if (!temporary) this.#shares.set(record, this.#quotas.recoverSession(owner));
    this.enter(record);
  }

  /** Counts a session in its sandbox, if it has one. */
  enter(record: SessionRecord): void {
    if (record.place === undefined) return;
    const key = keyOf(record.place.sandbox);
    const sessions = this.#bySandbox.get(key) ?? new Set();
    this.#bySandbox.set(key, sessions.add(record));
  }

  /** Idempotent. */
  release(record: SessionRecord): void {
    this.#shares.get(record)?.release();
    this.#shares.delete(record);
    if (record.place === undefined) return;
    const key = keyOf(record.place.sandbox);
    const sessions = this.#bySandbox.get(key);
    sessions?.delete(record);
    if (sessions?.size === 0) this.#bySandbox.delete(key);
  }

  /** Releases and returns the sessions of a sandbox that ends. */
  vacate(sandbox: SandboxOfSession): SessionRecord[] {
    const sessions = [...(this.#bySandbox.get(keyOf(sandbox)) ?? [])];
    for (const record of sessions) this.release(record);
    return sessions;
  }

  #assertRoom(sandbox: SandboxOfSession, { bytes }: SessionRecord): void {
    const sessions = [...(this.#bySandbox.get(keyOf(sandbox)) ?? [])];
    const size = sessions.reduce((sum, session) => sum + session.bytes, bytes);
    if (sessions.length >= MAX_SESSIONS) throw full(`${MAX_SESSIONS} sessions`, MAX_SESSIONS);
    if (size > MAX_BYTES)
      throw full(`${MAX_BYTES} bytes for the configs and secrets of its sessions`, MAX_BYTES);
  }
}

function full(what: string, limit: number): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    `The sandbox has reached its limit of ${what}. Destroy one, or use another sandbox.`,
    { metadata: { limit: String(limit) } },
  );
}

function keyOf({ owner, sandboxId, generation }: SandboxOfSession): string {
  return compositeKey(owner, sandboxId, generation);
}
