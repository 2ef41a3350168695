import type { Command } from "commander";
import type { CommandHost } from "./host.ts";

/** Loads the file of a command and creates the command. */
type MakeCommand = (host: CommandHost) => Promise<Command>;

/** Every command by name, in the order of the help. Using one loads only its own file. */
export const COMMANDS: Readonly<Record<string, MakeCommand>> = {
  serve: async (host) => (await import("./commands/serve.ts")).serveCommand(host),
  token: async (host) => (await import("./commands/token.ts")).tokenCommand(host),
  doctor: async (host) => (await import("./commands/doctor.ts")).doctorCommand(host),
  run: async (host) => (await import("./commands/run.ts")).runCommand(host),
  create: async (host) => (await import("./commands/create.ts")).createCommand(host),
  exec: async (host) => (await import("./commands/exec.ts")).execCommand(host),
  shell: async (host) => (await import("./commands/shell.ts")).shellCommand(host),
  cp: async (host) => (await import("./commands/cp.ts")).cpCommand(host),
  ps: async (host) => (await import("./commands/ps.ts")).psCommand(host),
  logs: async (host) => (await import("./commands/logs.ts")).logsCommand(host),
  ls: async (host) => (await import("./commands/ls.ts")).lsCommand(host),
  top: async (host) => (await import("./commands/top.ts")).topCommand(host),
  rm: async (host) => (await import("./commands/rm.ts")).rmCommand(host),
  inspect: async (host) => (await import("./commands/inspect.ts")).inspectCommand(host),
  update: async (host) => (await import("./commands/update.ts")).updateCommand(host),
  pause: async (host) => (await import("./commands/pause.ts")).pauseCommand(host),
  resume: async (host) => (await import("./commands/pause.ts")).resumeCommand(host),
  kill: async (host) => (await import("./commands/kill.ts")).killCommand(host),
  wait: async (host) => (await import("./commands/wait.ts")).waitCommand(host),
  stats: async (host) => (await import("./commands/stats.ts")).statsCommand(host),
  session: async (host) => (await import("./commands/session.ts")).sessionCommand(host),
  tool: async (host) => (await import("./commands/tool.ts")).toolCommand(host),
  workspace: async (host) => (await import("./commands/workspace.ts")).workspaceCommand(host),
  runs: async (host) => (await import("./commands/runs.ts")).runsCommand(host),
  completion: async (host) => (await import("./commands/completion.ts")).completionCommand(host, COMMANDS),
  version: async (host) => (await import("./commands/version.ts")).versionCommand(host),
};
