import { BerthError } from "../base/errors.ts";
import type { SandboxManager, SandboxName } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { SessionType } from "./backend.ts";
import { type SessionInit, type SessionRecord, sessionLost } from "./record.ts";
import type { StoredSession } from "./store.ts";
import type { ToolCatalog } from "./tool-catalog.ts";

/** A stored session: one that continues, or whose next call reports that it was lost, or one that must be ended. */
interface Recovered {
  readonly record: SessionRecord;
  readonly isLeftover: boolean;
}

/** Creates records of the stored sessions, one after another. */
export function* recoverSessions(
  stored: Iterable<StoredSession>,
  newRecord: (init: SessionInit) => SessionRecord,
  parts: {
    readonly catalog: ToolCatalog;
    readonly sandboxes: SandboxManager;
    readonly time: ServiceTime;
    /** How much later than stored a session may have been used. */
    readonly slackMs: number;
  },
): Generator<Recovered> {
  for (const session of stored) {
    const type = parts.catalog.types.find((entry) => entry.type.name === session.resourceType)?.type;
    const { owner, sandboxId, generation, ownsSandbox } = session;
    const place = { sandbox: { owner, sandboxId, generation }, owned: ownsSandbox };
    const leftMs = session.lastUsedAtMs + session.ttlMs + parts.slackMs - parts.time.nowMs();
    const isLeftover = type === undefined || session.temporary || !session.initialized || leftMs <= 0;
    const init = initOf(session, type ?? unknownType(session.resourceType));
    const record = newRecord(isLeftover ? { ...init, config: {}, secrets: undefined } : init);
    record.place = place;
    if (isLeftover) {
      yield { record, isLeftover };
      continue;
    }
    if (!isUsable(place.sandbox, parts.sandboxes))
      record.lost = sessionLost(record, "the server was restarted, and its sandbox is gone");
    record.resume(session, leftMs);
    yield { record, isLeftover };
  }
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
    // Versions that did not store it did not keep the generation that was asked for.
    sandbox: stored.ownsSandbox ? undefined : (stored.sandbox ?? { sandboxId: stored.sandboxId }),
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
