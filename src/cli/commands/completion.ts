import { Argument, Command } from "commander";
import { untilAborted } from "../../base/async.ts";
import { SystemClock } from "../../base/clock.ts";
import { type Candidate, complete, type Typed } from "../completion/complete.ts";
import { askService } from "../completion/live.ts";
import { SCRIPTS, type Shell } from "../completion/scripts.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { type CommandHost, withClient } from "../host.ts";
import { write } from "../io.ts";
import { visible } from "../visible.ts";

/** How long a service may take to list what it has. The shell waits meanwhile, and a second Tab asks again. */
const ASK_TIMEOUT_MS = 1_000;

/** `berth completion`: makes a shell complete the program's command lines. */
export function completionCommand(
  host: CommandHost,
  commands: Readonly<Record<string, (host: CommandHost) => Promise<Command>>>,
): Command {
  return new Command("completion")
    .summary("print a shell's completion script for berth")
    .description(
      "Prints a script for bash, zsh or fish that makes Tab complete commands, options and ids. For ids it asks the service that " +
        "the line names, by --address or BERTH_ADDRESS; without an answer within a second it completes none.\n\n" +
        "To load it in every shell, add a line to the shell's start file:\n" +
        "  ~/.bashrc                   source <(berth completion bash)\n" +
        "  ~/.zshrc, after compinit    source <(berth completion zsh)\n" +
        "  ~/.config/fish/config.fish  berth completion fish | source",
    )
    .usage("[options] SHELL")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(SCRIPTS)))
    .addArgument(new Argument("[word...]", "after --, the words of a line to complete; used by the scripts"))
    .addHelpText(
      "after",
      examples("berth completion bash > /etc/bash_completion.d/berth", "berth completion zsh"),
    )
    .action(
      host.action(async (shell: Shell, words: string[]) => {
        if (words.length === 0) {
          await write(host.io.stdout, SCRIPTS[shell]);
          return EXIT.ok;
        }
        const { candidates, files } = await complete(words, {
          commands: Object.fromEntries(
            Object.entries(commands).map(([name, make]) => [name, () => make(host)]),
          ),
          described: shell !== "bash",
          live: (kind, typed) => liveCandidates(host, kind, typed),
        });
        const lines = candidates.filter(({ value }) => visible(value) === value).map(lineOf);
        await write(host.io.stdout, [files ? "files" : "words", ...lines, ""].join("\n"));
        return EXIT.ok;
      }),
    );
}

function lineOf({ value, description }: Candidate): string {
  return `${value}\t${visible(description)}`;
}

/** Candidates from the service. None if it does not answer in time. */
async function liveCandidates(
  host: CommandHost,
  kind: string,
  typed: Typed,
): Promise<readonly Candidate[] | undefined> {
  let found: readonly Candidate[] | undefined = [];
  const late = new AbortController();
  new SystemClock().setTimer(ASK_TIMEOUT_MS, () => late.abort());
  const signal = AbortSignal.any([host.interrupts.signal, late.signal]);
  const asked = withClient(host, typed.flags, EXIT.failed, async (client) => {
    // Caught here, because explaining a failure takes time too.
    const answer = await askService(client, kind, typed, signal).catch(() => []);
    if (!signal.aborted) found = answer;
    return EXIT.ok;
  });
  try {
    // Before the first call, it may find out whether the other side speaks TLS, which takes longer.
    await untilAborted(asked, signal);
  } catch {
    // Completion shows no errors.
  }
  return found;
}
