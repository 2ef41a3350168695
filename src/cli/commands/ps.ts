import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  ExitCause,
  ListProcessesResponseSchema,
  type Process,
  ProcessSchema,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { quoteIfNeeded } from "../../base/shell-quote.ts";
import type { Tone } from "../colour.ts";
import { examples } from "../examples.ts";
import { formatAge, formatSize, formatWord } from "../format.ts";
import type { CommandHost } from "../host.ts";
import { type ListCall, type ListFlags, type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";
import { visible } from "../visible.ts";

const MAX_COMMAND = 80;

interface PsFlags extends ListFlags {
  readonly all?: boolean;
}

const PROCESSES: ListKind<typeof ListProcessesResponseSchema, typeof ProcessSchema> = {
  answer: ListProcessesResponseSchema,
  item: ProcessSchema,
  itemsOf: ({ processes }) => processes,
  idOf: ({ processId }) => processId,
  columns: [
    { heading: "ID", text: ({ processId }) => processId },
    { heading: "STATE", text: stateOf, tone: toneOf },
    { heading: "STARTED", text: ({ startTime }) => (startTime ? `${formatAge(startTime)} ago` : "") },
    { heading: "STDOUT", text: ({ stdoutBytes }) => formatSize(Number(stdoutBytes)) },
    { heading: "STDERR", text: ({ stderrBytes }) => formatSize(Number(stderrBytes)) },
    { heading: "COMMAND", text: ({ command }) => commandText(command, MAX_COMMAND) },
  ],
};

/** `berth ps`: lists the processes of a sandbox. */
export function psCommand(host: CommandHost): Command {
  return listCommand("ps")
    .summary("list the processes of a sandbox")
    .description(
      "Lists the processes that the service started in a sandbox, newest first. `berth logs` shows their output.",
    )
    .option("-a, --all", "also those that ended in the last 24 hours")
    .argument("<sandbox>", "id of the sandbox")
    .addHelpText(
      "after",
      examples(
        "berth ps SANDBOX",
        "berth ps --all -q SANDBOX",
        "berth ps --format 'table {{.ID}}\\t{{.State}}\\t{{json .argv.args}}' SANDBOX",
      ),
    )
    .action(
      listAction(host, PROCESSES, async (client, { args: [sandboxId], flags, signal }: ListCall<PsFlags>) => {
        const query = { sandboxId, showEnded: flags.all === true };
        const pages = await everyPage((page) =>
          client.processes.listProcesses({ ...query, ...page }, { signal }),
        );
        return create(ListProcessesResponseSchema, {
          processes: pages.flatMap(({ processes }) => processes),
        });
      }),
    );
}

function stateOf({ exitStatus }: Process): string {
  if (!exitStatus) return "running";
  const { cause, exitCode, signal } = exitStatus;
  const word = formatWord(ExitCause[cause]);
  if (cause === ExitCause.EXITED) return `${word} (${exitCode})`;
  return cause === ExitCause.SIGNALED ? `${word} (${signal})` : word;
}

/** A process's command on one line in shell syntax, safe to print, and cut to a length. */
function commandText(command: Process["command"], most: number): string {
  const text =
    command.case === "argv" ? command.value.args.map(quoteIfNeeded).join(" ") : (command.value ?? "");
  const line = visible(text);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

function toneOf({ exitStatus }: Process): Tone {
  if (!exitStatus) return "good";
  return exitStatus.cause === ExitCause.EXITED && exitStatus.exitCode === 0 ? "muted" : "bad";
}
