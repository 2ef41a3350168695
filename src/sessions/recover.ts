import { BerthError } from "../base/errors.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionType } from "./backend.ts";
import { type SessionInit, type SessionRecord, sessionLost } from "./record.ts";
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
    if (!isUsable(place.sandbox, parts.sandboxes))
      record.lost = sessionLost(record, "the server was restarted, and its sandbox is gone");
    record.resume(session, leftMs);
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

/** Whether a sandbox can still be used. */
function isUsable(sandbox: SandboxName, sandboxes: SandboxManager): boolean {
  try {
    const { state } = sandboxes.get(sandbox);
    return state === "RUNNING" || state === "PAUSED";
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return false;
  }
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
