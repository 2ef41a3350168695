import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  ExitCause,
  type ExitStatus,
  ListProcessesResponseSchema,
  type Process,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { quoteIfNeeded } from "../../base/shell-quote.ts";
import type { ServiceClient } from "../client.ts";
import { EXIT } from "../exit.ts";
import { formatDuration, formatSize, formatTable, formatWord, messageJson, visible } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";

const PAGE_SIZE = 1000;
const MAX_COMMAND = 80;

interface PsFlags extends ClientFlags {
  readonly all?: boolean;
}

/** `berth ps`: which processes a sandbox has. */
export function psCommand(host: CommandHost): Command {
  return clientCommand("ps")
    .summary("list the processes of a sandbox")
    .description(
      "Lists the processes that were started in a sandbox over the service, newest first. What they write is read with `berth logs`.",
    )
    .option("-a, --all", "those that have ended within 24 hours too")
    .argument("<sandbox>", "id of the sandbox")
    .action(
      host.action(async (sandboxId: string, flags: PsFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const query = { sandboxId, showEnded: flags.all === true };
          const processes = await listAll(client, query, host.interrupts.signal);
          const { stdout } = host.io;
          if (flags.json) {
            const answer = create(ListProcessesResponseSchema, { processes });
            await writeJson(stdout, messageJson(ListProcessesResponseSchema, answer));
          } else {
            const headings = ["ID", "STATE", "STARTED", "STDOUT", "STDERR", "COMMAND"];
            const now = Date.now();
            await write(
              stdout,
              formatTable(
                headings,
                processes.map((process) => row(process, now)),
              ),
            );
          }
          return EXIT.ok;
        }),
      ),
    );
}

async function listAll(
  client: ServiceClient,
  query: { readonly sandboxId: string; readonly showEnded: boolean },
  signal: AbortSignal,
): Promise<Process[]> {
  const processes: Process[] = [];
  let pageToken = "";
  do {
    const page = await client.processes.listProcesses(
      { ...query, pageSize: PAGE_SIZE, pageToken },
      { signal },
    );
    processes.push(...page.processes);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return processes;
}

function row(process: Process, now: number): string[] {
  const { processId, exitStatus, startTime, stdoutBytes, stderrBytes, command } = process;
  return [
    processId,
    exitStatus ? stateOf(exitStatus) : "running",
    ago(startTime, now),
    formatSize(Number(stdoutBytes)),
    formatSize(Number(stderrBytes)),
    commandText(command, MAX_COMMAND),
  ];
}

function stateOf({ cause, exitCode, signal }: ExitStatus): string {
  const word = formatWord(ExitCause[cause]);
  if (cause === ExitCause.EXITED) return `${word} (${exitCode})`;
  return cause === ExitCause.SIGNALED ? `${word} (${signal})` : word;
}

function ago(time: Timestamp | undefined, now: number): string {
  return time ? `${formatDuration(Math.max(0, now - timestampMs(time)))} ago` : "";
}

/** A process's command on one line, as a shell would take it, safe to be shown, at most so many characters long. */
function commandText(command: Process["command"], most: number): string {
  const text =
    command.case === "argv" ? command.value.args.map(quoteIfNeeded).join(" ") : (command.value ?? "");
  const line = visible(text);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
