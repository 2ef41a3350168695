import type { Command } from "commander";

/** Ends a command's help with examples, one command line each. Tests parse every one of them. */
export function withExamples(command: Command, ...lines: readonly string[]): Command {
  return command.addHelpText(
    "after",
    `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`.trimEnd(),
  );
}
