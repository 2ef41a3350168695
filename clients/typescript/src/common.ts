/** What every platform's entry exports. */
export { Agent, type AgentRun, type AgentState, type AgentStep, type AgentStepResult } from "./agent.ts";
export { BerthClient } from "./client.ts";
export { CommandError, CommandResult } from "./command-result.ts";
export type { CallSettings, ClientSettings, Connection } from "./connection.ts";
export type { EnumName } from "./enum-name.ts";
export {
  BerthError,
  ConnectionLostError,
  type ErrorCode,
  type ErrorFacts,
  type Reason,
  type Received,
} from "./errors.ts";
export type { FileOptions, Files, WriteOptions } from "./files.ts";
export type { OutputCallbacks, Process } from "./process.ts";
export type { AgentMessage, RunOptions, Runs, StepReport } from "./runs.ts";
export type {
  AttachOptions,
  CommandOptions,
  ExecOptions,
  RunCommandOptions,
  Sandbox,
  SandboxChanges,
} from "./sandbox.ts";
export type { CreateOptions, EventsOptions, ListOptions, Sandboxes } from "./sandboxes.ts";
export type { Sessions } from "./sessions.ts";
export type { SignalName } from "./signals.ts";
export type { Subscription } from "./subscription.ts";
export type * from "./types.ts";
export type { SessionView } from "./view.ts";
export type { ExecuteOptions, Worker } from "./worker.ts";
export type { WorkspaceSandbox, Workspaces } from "./workspaces.ts";
