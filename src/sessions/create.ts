import { randomBytes } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason, invalidArgument, throwIfAborted } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import { shorten } from "../base/shorten.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";
import type { Prepared } from "../sandboxes/warm-pool.ts";
import type { SessionBackend, SessionHost, SessionType } from "./backend.ts";
import { parseWith } from "./parse.ts";
import type { SessionPlaces } from "./places.ts";
import type { SessionInit, SessionPlace, SessionRecord } from "./record.ts";
import type { SessionKey } from "./registry.ts";
import type { RequestedSession, SessionNames, SessionSecrets } from "./session.ts";
import type { SessionJournal } from "./store.ts";

const WORKSPACE_TARGET = "/workspace";
/** A session's own sandbox is deleted with the session. If that fails, its idle timeout ends it this much later. */
const OUTLIVES_MS = 60_000;
/** The longest value of a label that Berth accepts. */
const MAX_LABEL_BYTES = 255;
/** The longest duration that Berth accepts. */
const MAX_MS = 24 * 24 * 3600 * 1000;
const MAX_NUMBER = 999;
/** How many counts are kept to number sessions. The oldest are dropped, and start again at 1. */
const MAX_COUNTS = 10_000;

interface SessionCreatorParts {
  readonly sandboxes: SandboxManager;
  readonly places: SessionPlaces;
  readonly journal: SessionJournal;
  readonly clock: Clock;
  /** The time to live if the creator sets none. */
  readonly defaultTtlMs: number;
}

/** Names sessions, creates their sandboxes and initializes their backends. */
export class SessionCreator {
  readonly #parts: SessionCreatorParts;
  readonly #namer = new SessionNamer();

  constructor(parts: SessionCreatorParts) {
    this.#parts = parts;
  }

  /** The fixed part of a new session. @throws `INVALID_ARGUMENT` if its config is invalid. */
  init(
    { owner, workerId }: SessionKey,
    type: SessionType,
    asked: Omit<RequestedSession, "resourceType">,
    temporary: boolean,
  ): SessionInit {
    const config = parseConfig(type, asked.config ?? {});
    type.check?.(config, { keptDir: keptDir(asked.sandbox === undefined, asked.workspaceId) });
    checkSecrets(type, asked.secrets);
    const customName = asked.customName || customNameOf(config);
    return {
      ...this.#namer.next(owner, workerId, type.name, customName),
      owner,
      workerId,
      type,
      config,
      customName,
      sandbox: asked.sandbox,
      workspaceId: asked.workspaceId,
      ttlMs: asked.ttlMs ?? this.#parts.defaultTtlMs,
      temporary,
      createTimeMs: this.#parts.clock.wallMs(),
      secrets: asked.secrets,
    };
  }

  /**
   * Reserves what a session takes, until it ends.
   * @throws `SANDBOX_NOT_FOUND`, `SANDBOX_REPLACED`, `SANDBOX_NOT_RUNNING`, and what {@link SessionPlaces.reserve}
   *   throws.
   */
  reserve(record: SessionRecord): void {
    const { owner, sandbox } = record.init;
    if (sandbox !== undefined) record.place = this.#findSandbox(owner, sandbox);
    this.#parts.places.reserve(record);
  }

  /**
   * Initializes a session in its sandbox, which it creates first if the session is to have its own. On failure the
   * caller ends the session, which removes what was created.
   * @throws what {@link SandboxManager.create} and {@link SessionType.initialize} throw.
   */
  async create(record: SessionRecord, signal: AbortSignal): Promise<SessionPlace> {
    let prestarted: Prepared | undefined;
    if (record.place === undefined) {
      record.place = await this.#makeSandbox(record, signal, (prepared) => {
        prestarted = prepared;
      });
      this.#parts.places.enter(record);
    }
    const { place } = record;
    // The warm pool of a type holds only what that type prestarted.
    record.backend = await this.initialize(record, place, signal, prestarted as SessionBackend | undefined);
    record.state = "ACTIVE";
    record.touch();
    return place;
  }

  /** Initializes the backend of a session in its sandbox, or adopts a prestarted backend if it fits. */
  async initialize(
    record: SessionRecord,
    place: SessionPlace,
    signal: AbortSignal,
    prestarted?: SessionBackend,
  ): Promise<SessionBackend> {
    const { type, config, workerId, sessionId, workspaceId, secrets } = record.init;
    using lease = this.#parts.sandboxes.acquire(place.sandbox);
    const both = AbortSignal.any([signal, lease.signal]);
    const host: SessionHost = {
      workerId,
      sessionId,
      sandbox: lease.sandbox,
      name: place.sandbox,
      keptDir: keptDir(place.owned, workspaceId),
      secrets,
    };
    const backend =
      (await adoptOrCleanUp(type, prestarted, host, config, both)) ??
      (await type.initialize(host, config, both));
    if (both.aborted) await backend.cleanup(false);
    throwIfAborted(both);
    return backend;
  }

  /** Creates the session's own sandbox. Stores the session with it first. */
  async #makeSandbox(
    record: SessionRecord,
    signal: AbortSignal,
    taken: (prepared: Prepared) => void,
  ): Promise<SessionPlace> {
    const { owner, sessionId, type, ttlMs, workspaceId } = record.init;
    const spec: RequestedSpec = {
      ...this.#parts.sandboxes.fit(type.sandbox),
      labels: { session_id: shorten(sessionId, MAX_LABEL_BYTES) },
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
      this.#parts.journal.keep(record.stored(placeOf(sandbox)));
    const prepared = { resourceType: type.name, taken };
    const making = this.#parts.sandboxes.create(owner, spec, { signal, keepWith, prepared });
    return placeOf(
      await making.catch((error: unknown) => {
        throw withImageHint(error, type);
      }),
    );
  }

  #findSandbox(owner: string, asked: { sandboxId: string; generation?: number }): SessionPlace {
    using lease = this.#parts.sandboxes.acquire({ owner, ...asked });
    const { sandboxId, generation } = lease.sandbox;
    return { sandbox: { owner, sandboxId, generation }, owned: false };
  }
}

/** Where files outlive a session: see {@link SessionHome}. */
function keptDir(ownsSandbox: boolean, workspaceId: string): string | undefined {
  if (!ownsSandbox) return "/";
  return workspaceId === "" ? undefined : WORKSPACE_TARGET;
}

/** Adds to an IMAGE_UNAVAILABLE error how to get the image of the type. */
function withImageHint(error: unknown, { name, sandbox }: SessionType): unknown {
  const isAboutIt = hasReason(error, "IMAGE_UNAVAILABLE") && sandbox.image;
  if (!isAboutIt) return error;
  return new BerthError(
    error.reason,
    `${error.message} Sessions of the type ${name} run in it. The operator builds it with scripts/base-image.sh --desktop in Berth's sources, or names another one by --desktop-image.`,
    { cause: error, metadata: error.metadata },
  );
}

/** Adopts a prestarted backend. If it does not fit, or fails, cleans it up and returns undefined. */
async function adoptOrCleanUp(
  type: SessionType,
  prestarted: SessionBackend | undefined,
  host: SessionHost,
  config: unknown,
  signal: AbortSignal,
): Promise<SessionBackend | undefined> {
  if (prestarted === undefined) return undefined;
  if (await type.adopt?.(prestarted, host, config, signal).catch(() => false)) return prestarted;
  await prestarted.cleanup(false);
  throwIfAborted(signal);
  return undefined;
}

/** The `custom_name` of a config, or empty. */
export function customNameOf({ custom_name: name }: JsonObject): string {
  return typeof name === "string" ? name : "";
}

/** Refuses secrets for a type that does not use them. @throws `INVALID_ARGUMENT`. */
export function checkSecrets({ name, takesSecrets }: SessionType, secrets: SessionSecrets | undefined): void {
  if (secrets === undefined || takesSecrets) return;
  throw invalidArgument("secrets", `sessions of the type ${name} take none. Leave it out.`);
}

/** @throws `INVALID_ARGUMENT`. */
export function parseConfig(type: SessionType, given: JsonObject): JsonObject {
  return parseWith(type.config, "config", given) as JsonObject;
}

/** Names sessions. Names and ids are displayed and compared, and never used as paths. */
class SessionNamer {
  /** How many sessions of each type each worker has had since the service started. */
  readonly #counts = new Map<string, number>();

  next(owner: string, workerId: string, type: string, customName: string): SessionNames {
    const key = JSON.stringify([owner, workerId, type]);
    const number = ((this.#counts.get(key) ?? 0) % MAX_NUMBER) + 1;
    this.#counts.delete(key);
    this.#counts.set(key, number);
    if (this.#counts.size > MAX_COUNTS) {
      const oldest = this.#counts.keys().next();
      if (!oldest.done) this.#counts.delete(oldest.value);
    }
    const parts = [type, workerId, String(number).padStart(3, "0"), ...(customName ? [customName] : [])];
    const name = parts.join("_");
    return { name, sessionId: `${name}_${randomBytes(4).toString("hex")}` };
  }
}
