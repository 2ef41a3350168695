import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  IsolationLevel,
  ListSandboxesResponseSchema,
  type Sandbox,
  SandboxState,
  TerminationCause,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "../client.ts";
import { EXIT } from "../exit.ts";
import { collect, keyValues } from "../flags.ts";
import { formatDuration, formatTable, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";

const PAGE_SIZE = 1000;

interface LsFlags extends ClientFlags {
  readonly all?: boolean;
  readonly label?: readonly string[];
}

/** `berth ls`: which sandboxes there are. */
export function lsCommand(host: CommandHost): Command {
  return clientCommand("ls")
    .summary("list sandboxes")
    .description("Lists sandboxes, newest first.")
    .option("-a, --all", "those that have ended within 24 hours too")
    .option("-l, --label <KEY=VALUE>", "only those with this label, may be repeated", collect)
    .action(
      host.action(async (flags: LsFlags) => {
        const labelSelector = keyValues("--label", flags.label);
        return withClient(host, flags, EXIT.failed, async (client) => {
          const query = { labelSelector, showTerminated: flags.all === true };
          const sandboxes = await listAll(client, query, host.interrupts.signal);
          const { stdout } = host.io;
          if (flags.json) {
            const answer = create(ListSandboxesResponseSchema, { sandboxes });
            await writeJson(stdout, messageJson(ListSandboxesResponseSchema, answer));
          } else {
            const headings = ["ID", "STATE", "IMAGE", "AGE", "EXPIRES", "ACTIVE"];
            const now = Date.now();
            await write(
              stdout,
              formatTable(
                headings,
                sandboxes.map((sandbox) => row(sandbox, now)),
              ),
            );
          }
          return EXIT.ok;
        });
      }),
    );
}

async function listAll(
  client: ServiceClient,
  query: { readonly labelSelector: Record<string, string>; readonly showTerminated: boolean },
  signal: AbortSignal,
): Promise<Sandbox[]> {
  const sandboxes: Sandbox[] = [];
  let pageToken = "";
  do {
    const page = await client.sandboxes.listSandboxes(
      { ...query, pageSize: PAGE_SIZE, pageToken },
      { signal },
    );
    sandboxes.push(...page.sandboxes);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return sandboxes;
}

function row(sandbox: Sandbox, now: number): string[] {
  const { sandboxId, state, createTime, expireTime, activeOperations, termination } = sandbox;
  const cause = termination ? ` (${formatWord(TerminationCause[termination.cause])})` : "";
  return [
    sandboxId,
    formatWord(SandboxState[state]) + cause,
    imageOf(sandbox),
    since(createTime, now),
    termination ? "" : until(expireTime, now),
    String(activeOperations),
  ];
}

/** The image that it runs; bubblewrap, which alone isolates so, has none. */
function imageOf({ isolation, spec }: Sandbox): string {
  return isolation === IsolationLevel.NAMESPACE ? "-" : (spec?.image ?? "");
}

function since(time: Timestamp | undefined, now: number): string {
  return time ? formatDuration(Math.max(0, now - timestampMs(time))) : "";
}

function until(time: Timestamp | undefined, now: number): string {
  return time ? `in ${formatDuration(Math.max(0, timestampMs(time) - now))}` : "not while in use";
}
