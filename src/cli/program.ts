import { Command, CommanderError } from "commander";
import { hasReason } from "../base/errors.ts";
import { complaint } from "./colour.ts";
import { COMMANDS } from "./commands.ts";
import { examples } from "./examples.ts";
import { EXIT, Failed, Interrupted, UsageError } from "./exit.ts";
import { CLIENT_OPTIONS, type CommandHost } from "./host.ts";
import type { Io } from "./io.ts";
import { Interrupts, write } from "./io.ts";
import { arrangeLine, helpLine, splitLine } from "./line.ts";
import type { ServiceParts } from "./service.ts";

interface ProgramOptions {
  readonly io: Io;
  readonly service: ServiceParts;
  readonly version: string;
  /** Ends the program at once. */
  readonly exit: (code: number) => void;
}

/** Runs the program with the arguments after its name. Resolves with its exit code. */
export async function runProgram(args: readonly string[], options: ProgramOptions): Promise<number> {
  const { io, service, version, exit } = options;
  const interrupts = new Interrupts(io, exit);
  let exitCode: number = EXIT.ok;
  let help = "";
  const host: CommandHost = {
    io,
    interrupts,
    version,
    service,
    action:
      (run) =>
      async (...given) => {
        exitCode = await run(...given);
      },
  };
  try {
    if (args.some((arg) => arg.includes("\ufffd"))) {
      const { refuseOtherBytes } = await import("./other-bytes.ts");
      refuseOtherBytes(args);
    }
    // Commander does not wait until its help is written, so it cannot notice a failure.
    const { program, words } = await programFor(args, host, (text) => {
      help += text;
    });
    await program.parseAsync(words, { from: "user" }).catch(async (error: unknown) => {
      if (help !== "") await write(io.stdout, help, interrupts.signal);
      throw error;
    });
    return exitCode;
  } catch (error) {
    return tellEnd(interrupts.reasonOf(error), io);
  } finally {
    interrupts.dispose();
  }
}

/**
 * The program with the commands that a line needs, and the line in the form that commander accepts.
 * @param writeOut takes help and the version.
 */
async function programFor(args: readonly string[], host: CommandHost, writeOut: (text: string) => void) {
  const { io, version } = host;
  const program = new Command("berth")
    .description("A safe place to run code: sandboxes as a gRPC service.")
    .version(version)
    .addHelpText(
      "after",
      examples(
        "berth serve",
        "berth run -- python3 -c 'print(6 * 7)'",
        "berth exec $(berth create) -- ls -l",
        "berth ls",
      ),
    )
    .enablePositionalOptions();
  const line = splitLine(args, CLIENT_OPTIONS);
  // Commander's own `help` takes only one name, and prints nothing for an unknown one.
  const explained = line.name === "help" ? line.rest.filter((word) => !word.startsWith("-")) : [];
  const name = explained[0] ?? line.name;
  const only = name !== undefined && Object.hasOwn(COMMANDS, name) && COMMANDS[name];
  const isVersion = args[0] === "--version" || args[0] === "-V";
  // Help and suggestions need all commands.
  const needed = only ? [only] : isVersion ? [] : Object.values(COMMANDS);
  const commands = await Promise.all(needed.map((make) => make(host)));
  for (const command of commands) program.addCommand(command);
  for (const command of [program, ...commands, ...commands.flatMap((one) => one.commands)]) {
    command.exitOverride().configureOutput({
      writeOut,
      writeErr: (text) => io.stderr.write(text),
      outputError: (text, writeErr) =>
        writeErr(text.startsWith("error: ") ? complaint(io, text.slice("error: ".length).trimEnd()) : text),
    });
  }
  if (explained.length > 0) return { program, words: helpLine(explained, program) };
  const [command] = commands;
  return { program, words: only && command ? arrangeLine(line, command, CLIENT_OPTIONS) : args };
}

/** Prints why the program ends early, and returns the exit code. */
function tellEnd(error: unknown, io: Io): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof Interrupted) {
    if (error.exitCode !== EXIT.outputClosed) io.stderr.write(complaint(io, error.message));
    return error.exitCode;
  }
  if (error instanceof UsageError || hasReason(error, "INVALID_ARGUMENT")) {
    io.stderr.write(complaint(io, error.message));
    return EXIT.usage;
  }
  if (error instanceof Failed) {
    io.stderr.write(complaint(io, error.message, error.hint));
    return error.exitCode;
  }
  io.stderr.write(complaint(io, error instanceof Error ? (error.stack ?? error.message) : String(error)));
  return EXIT.failed;
}
