import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { FileManager } from "../files/manager.ts";
import type { ProcessControl, Shells } from "../processes/control.ts";
import type { ProcessManager } from "../processes/manager.ts";
import type { JobRunner } from "../processes/shell/job.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import type { WarmSessionTarget } from "../sandboxes/warm-pool.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import { SessionManager, type SessionManagerSettings } from "./manager.ts";
import type { SessionStore } from "./store.ts";
import { ToolCatalog } from "./tool-catalog.ts";
import { ToolRunner } from "./tool-runner.ts";
import { bashType } from "./types/bash/type.ts";
import { browserType } from "./types/browser/type.ts";
import { codeType } from "./types/code/type.ts";
import { filesType } from "./types/files/type.ts";
import { HeldMemory } from "./types/held-memory.ts";
import { pythonType } from "./types/python/type.ts";
import { vmType } from "./types/vm/type.ts";
import { SessionViewer } from "./viewer.ts";

interface SessionParts {
  readonly sandboxes: SandboxManager;
  readonly quotas: TenantQuotas;
  readonly files: FileManager;
  readonly processes: ProcessManager;
  readonly runner: JobRunner;
  readonly shells: Shells;
  readonly control: ProcessControl;
  readonly store: SessionStore;
  readonly writeBehind: WriteBehind;
  readonly time: ServiceTime;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface SessionSettings extends SessionManagerSettings {
  /** Image of sandboxes for desktops and browsers. */
  readonly desktopImage: string;
  /** Sessions to keep prestarted. */
  readonly warmSessions: readonly WarmSessionTarget[];
}

/** Builds the sessions and their tools. The only place that names the session types. */
export function createSessions(settings: SessionSettings, parts: SessionParts) {
  const memory = new HeldMemory();
  const programs = { ...parts, memory };
  const catalog = new ToolCatalog([
    bashType(programs),
    browserType(programs, settings.desktopImage),
    codeType(parts.processes),
    filesType(parts.files, parts.processes, memory),
    pythonType(programs),
    vmType(programs, settings.desktopImage),
  ]);
  for (const { type } of catalog.types) {
    const count = settings.warmSessions.find(({ resourceType }) => resourceType === type.name)?.count;
    if (count === undefined || type.prestart === undefined) continue;
    const prepare = type.prestart.bind(type);
    parts.sandboxes.keepPrepared({ resourceType: type.name, count, spec: type.sandbox, prepare });
  }
  const sessions = new SessionManager(settings, { ...parts, catalog });
  return {
    catalog,
    sessions,
    viewer: new SessionViewer({ ...parts, sessions }),
    tools: new ToolRunner({ ...parts, catalog, sessions }),
  };
}
