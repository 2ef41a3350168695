import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { MAX_DURATION_MS } from "../../config/values.ts";
import { remarkLine } from "../colour.ts";
import { commandEnd } from "../command-end.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed } from "../exit.ts";
import { addExecFlags, argvOf, type ExecFlags, execRequestOf } from "../flags.ts";
import { type ClientFlags, type CommandHost, serviceCommand, withClient } from "../host.ts";
import { write } from "../io.ts";
import { LocalTerminal } from "../terminal/local-terminal.ts";
import { runSession } from "../terminal/session.ts";

const DEFAULT_SHELL = "if command -v bash >/dev/null; then exec bash; fi; exec sh";

/** `berth shell`: runs a program in a sandbox, at this terminal. */
export function shellCommand(host: CommandHost): Command {
  return addExecFlags(serviceCommand("shell"))
    .summary("open a shell in a sandbox, at this terminal")
    .description(
      "Runs a command in a sandbox at a terminal, shown on this one: bash if the sandbox has it, else sh, unless you give " +
        "another command. Every key goes to it, including Ctrl-C, and its terminal always has the size of this one. The exit code " +
        "is the command's, as for `berth exec`. TERM is xterm-256color unless -e sets it.\n\n" +
        "To leave a session that does not respond, type Enter, then ~. (tilde, dot): this ends the command. ~~ at the start of a " +
        "line sends one tilde.",
    )
    .usage("[options] SANDBOX [-- COMMAND [ARGUMENT...]]")
    .argument("<sandbox>", "id of the sandbox")
    .argument("[command...]", "the program and its arguments; put -- before it")
    .passThroughOptions()
    .addHelpText(
      "after",
      examples("berth shell SANDBOX", "berth shell -u root SANDBOX", "berth shell SANDBOX -- python3"),
    )
    .action(
      host.action(async (sandboxId: string, words: string[], flags: ClientFlags & ExecFlags) => {
        const args = argvOf(words);
        const request = {
          ...execRequestOf(sandboxId, flags),
          command:
            args.length === 0
              ? { case: "shell" as const, value: DEFAULT_SHELL }
              : { case: "argv" as const, value: { args } },
          // The user ends it: a sandbox's command timeout is for commands that run unattended.
          timeout: durationFromMs(MAX_DURATION_MS),
        };
        const terminal = LocalTerminal.of(host.io);
        if (terminal === undefined) {
          throw new Failed("`berth shell` needs a terminal, but its stdin or stdout is not one", {
            hint: "Without one: berth exec SANDBOX -- COMMAND",
            exitCode: EXIT.noCommand,
          });
        }
        const { signal } = host.interrupts;
        return withClient(host, flags, EXIT.noCommand, async (client) => {
          const status = await runSession(client, {
            start: (size, ended) => client.processes.exec({ ...request, terminal: size }, { signal: ended }),
            terminal,
            signal,
          });
          const { exitCode, remark } = commandEnd(status);
          if (remark !== undefined) {
            terminal.breakLine();
            await write(host.io.stderr, remarkLine(remark));
          }
          return exitCode;
        });
      }),
    );
}
