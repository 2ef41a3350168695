import type { Clock } from "./core/ports/clock.ts";
import type { Logger } from "./core/ports/logger.ts";
import type { SessionStore } from "./core/ports/session-store.ts";
import type { SandboxManager } from "./core/sandbox/sandbox-manager.ts";
import { SessionManager, type SessionManagerSettings } from "./core/session/session-manager.ts";
import { ToolCatalog } from "./core/session/tool-catalog.ts";
import { ToolRunner } from "./core/session/tool-runner.ts";
import type { ServiceTime } from "./core/state/service-time.ts";
import type { WriteBehind } from "./core/state/write-behind.ts";
import type { FileManager } from "./files/file-manager.ts";
import type { ProcessControl, Shells } from "./process/control.ts";
import type { JobRunner } from "./process/job.ts";
import type { ProcessManager } from "./process/process-manager.ts";
import { bashType } from "./resource/bash/type.ts";
import { codeType } from "./resource/code/type.ts";
import { filesType } from "./resource/files/type.ts";
import { pythonType } from "./resource/python/type.ts";

/** What sessions are built of. */
export interface SessionPartsInit {
  readonly sandboxes: SandboxManager;
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

/** Sessions and their tools: the one place that knows the types there are. */
export class SessionParts {
  readonly catalog: ToolCatalog;
  readonly sessions: SessionManager;
  readonly tools: ToolRunner;

  constructor(settings: SessionManagerSettings, parts: SessionPartsInit) {
    this.catalog = new ToolCatalog([
      bashType(parts),
      codeType(parts.processes),
      filesType(parts.files, parts.processes),
      pythonType(parts),
    ]);
    this.sessions = new SessionManager(settings, { ...parts, catalog: this.catalog });
    this.tools = new ToolRunner({ ...parts, catalog: this.catalog, sessions: this.sessions });
  }
}
