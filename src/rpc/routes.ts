import { FileService } from "../../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import { RunService } from "../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceService } from "../../gen/ts/berth/v1/workspace_pb.js";
import type { Work } from "../server/fair-queue.ts";
import type { Routes } from "../server/routes.ts";
import { FileHandler, type FileHandlerParts } from "./file-service.ts";
import { ProcessHandler, type ProcessHandlerParts } from "./process-service.ts";
import { RunHandler, type RunHandlerParts } from "./run-service.ts";
import { SandboxHandler, type SandboxHandlerParts } from "./sandbox-service.ts";
import { SessionHandler, type SessionHandlerParts } from "./session-service.ts";
import { WorkspaceHandler, type WorkspaceHandlerParts } from "./workspace-service.ts";

/**
 * What calls keep busy, by `package.Service/Method`: those that create sandboxes keep the engine busy; lists and
 * comparisons, tools that visit every entry.
 */
export const METHOD_WORK: ReadonlyMap<string, Work> = new Map(
  (
    [
      [SandboxService.method.createSandbox, "engine"],
      [WorkspaceService.method.ensureWorkspaceSandbox, "engine"],
      [SessionService.method.createSessions, "engine"],
      [SessionService.method.reinitializeSession, "engine"],
      [RunService.method.startRun, "engine"],
      [FileService.method.listDirectory, "tools"],
      [WorkspaceService.method.diffWorkspace, "tools"],
    ] as const
  ).map(([{ parent, name }, work]) => [`${parent.typeName}/${name}`, work]),
);

/** All services of the API. Methods without a handler answer UNIMPLEMENTED. */
export function berthRoutes(
  parts: SandboxHandlerParts &
    ProcessHandlerParts &
    FileHandlerParts &
    SessionHandlerParts &
    RunHandlerParts &
    WorkspaceHandlerParts,
): Routes {
  return (router) => {
    router.service(SandboxService, new SandboxHandler(parts));
    router.service(ProcessService, new ProcessHandler(parts));
    router.service(FileService, new FileHandler(parts));
    router.service(WorkspaceService, new WorkspaceHandler(parts));
    router.service(SessionService, new SessionHandler(parts));
    router.service(RunService, new RunHandler(parts));
  };
}
