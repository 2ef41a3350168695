import { BerthError } from "../base/errors.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionType } from "./backend.ts";
import type { SessionInit, SessionRecord } from "./record.ts";
import type { StoredSession } from "./store.ts";
import type { ToolCatalog } from "./tool-catalog.ts";

/**
 * Creates records of the stored sessions.
 * @returns `records`: sessions that continue, or whose next call reports that they were lost; `leftovers`: sessions
 *   that must be ended.
 */
export function recoverSessions(
  stored: readonly StoredSession[],
  newRecord: (init: SessionInit) => SessionRecord,
  parts: {
    readonly catalog: ToolCatalog;
    readonly sandboxes: SandboxManager;
    readonly time: ServiceTime;
    /** How much later than stored a session may have been used. */
    readonly slackMs: number;
  },
): { records: SessionRecord[]; leftovers: SessionRecord[] } {
  const records: SessionRecord[] = [];
  const leftovers: SessionRecord[] = [];
  for (const session of stored) {
    const type = parts.catalog.types.find((entry) => entry.type.name === session.resourceType)?.type;
    const { owner, sandboxId, generation, ownsSandbox } = session;
    const place = { sandbox: { owner, sandboxId, generation }, owned: ownsSandbox };
    const record = newRecord(initOf(session, type ?? unknownType(session.resourceType)));
    record.place = place;
    const leftMs = session.lastUsedAtMs + session.ttlMs + parts.slackMs - parts.time.nowMs();
    if (type === undefined || session.temporary || !session.initialized || leftMs <= 0) {
      leftovers.push(record);
      continue;
    }
    record.lost = lossOf(session, parts.sandboxes);
    record.state = "ACTIVE";
    record.expireIn(leftMs);
    records.push(record);
  }
  return { records, leftovers };
}

function initOf(stored: StoredSession, type: SessionType): SessionInit {
  return {
    sessionId: stored.sessionId,
    name: stored.name,
    owner: stored.owner,
    workerId: stored.workerId,
    type,
    config: stored.config,
    customName: stored.customName,
    workspaceId: stored.workspaceId,
    ttlMs: stored.ttlMs,
    temporary: stored.temporary,
    createTimeMs: stored.createTimeMs,
    secrets: stored.secrets,
  };
}

/** Why a session cannot continue. Undefined if it can. */
function lossOf({ sessionId, owner, sandboxId, generation }: StoredSession, sandboxes: SandboxManager) {
  try {
    const { state } = sandboxes.get({ owner, sandboxId, generation });
    if (state === "RUNNING" || state === "PAUSED") return undefined;
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
  }
  return new BerthError(
    "SESSION_LOST",
    `The session ${JSON.stringify(sessionId)} was lost: the server was restarted, and its sandbox is gone.`,
    { metadata: { session_id: sessionId } },
  );
}

/** Stands in for a type that this server no longer offers, so that its sessions can be ended. */
function unknownType(name: string): SessionType {
  const unknown = (): never => {
    throw new BerthError("INTERNAL", `there is no resource type ${name}`);
  };
  return {
    name,
    description: "",
    tools: [],
    sandbox: {},
    initialize: unknown,
    get config() {
      return unknown();
    },
  };
}
