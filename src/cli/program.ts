import { Command, CommanderError } from "commander";
import { BerthError } from "../base/errors.ts";
import { cpCommand } from "./commands/cp.ts";
import { createCommand } from "./commands/create.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { execCommand } from "./commands/exec.ts";
import { logsCommand } from "./commands/logs.ts";
import { lsCommand } from "./commands/ls.ts";
import { psCommand } from "./commands/ps.ts";
import { rmCommand } from "./commands/rm.ts";
import { runCommand } from "./commands/run.ts";
import { runsCommand } from "./commands/runs.ts";
import { serveCommand } from "./commands/serve.ts";
import { sessionCommand } from "./commands/session.ts";
import { shellCommand } from "./commands/shell.ts";
import { statsCommand } from "./commands/stats.ts";
import { toolCommand } from "./commands/tool.ts";
import { workspaceCommand } from "./commands/workspace.ts";
import { EXIT, Failed, Interrupted, UsageError } from "./exit.ts";
import type { CommandHost } from "./host.ts";
import type { Io } from "./io.ts";
import { Interrupts } from "./io.ts";
import type { ServiceParts } from "./service.ts";

/** What the program is made of. */
export interface ProgramOptions {
  readonly io: Io;
  readonly service: ServiceParts;
  readonly version: string;
  /** Ends the program at once. */
  readonly exit: (code: number) => void;
}

/** Runs the program with the arguments behind its name; resolves with its exit code. */
export async function runProgram(args: readonly string[], options: ProgramOptions): Promise<number> {
  const { io, service, version, exit } = options;
  const interrupts = new Interrupts(io, exit);
  let exitCode: number = EXIT.ok;
  const host: CommandHost = {
    io,
    interrupts,
    action:
      (run) =>
      async (...given) => {
        exitCode = await run(...given);
      },
  };
  const program = new Command("berth")
    .description("A safe place to run code: sandboxes as a gRPC service.")
    .version(version)
    .enablePositionalOptions();
  const commands = [
    serveCommand(host, service),
    doctorCommand(host, service),
    runCommand(host),
    createCommand(host),
    execCommand(host),
    shellCommand(host),
    cpCommand(host),
    psCommand(host),
    logsCommand(host),
    lsCommand(host),
    rmCommand(host),
    statsCommand(host),
    sessionCommand(host),
    toolCommand(host),
    workspaceCommand(host),
    runsCommand(host),
  ];
  for (const command of commands) program.addCommand(command);
  for (const command of [program, ...commands, ...commands.flatMap((one) => one.commands)]) {
    command.exitOverride().configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      outputError: (text, writeErr) => writeErr(text.replace(/^error: /, "berth: ")),
    });
  }
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    return tellEnd(interrupts.signal.aborted ? interrupts.signal.reason : error, io);
  } finally {
    interrupts.dispose();
  }
}

/** Says why the program ends before its time, and gives the exit code. */
function tellEnd(error: unknown, io: Io): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof Interrupted) {
    if (error.exitCode !== EXIT.outputClosed) io.stderr.write(`berth: ${error.message}\n`);
    return error.exitCode;
  }
  if (error instanceof UsageError || (error instanceof BerthError && error.reason === "INVALID_ARGUMENT")) {
    io.stderr.write(`berth: ${error.message}\n`);
    return EXIT.usage;
  }
  if (error instanceof Failed) {
    io.stderr.write(`berth: ${error.message}\n${error.hint ? `${error.hint}\n` : ""}`);
    return error.exitCode;
  }
  io.stderr.write(`berth: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return EXIT.failed;
}
