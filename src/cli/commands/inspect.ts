import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { ProcessSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import { RunSchema } from "../../../gen/ts/berth/v1/run_pb.js";
import { SandboxSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionSchema } from "../../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceSchema } from "../../../gen/ts/berth/v1/workspace_pb.js";
import { safeJson } from "../../base/safe-json.ts";
import type { ServiceClient } from "../client.ts";
import { complaint } from "../colour.ts";
import { examples } from "../examples.ts";
import { EXIT, UsageError } from "../exit.ts";
import { reasonOf } from "../failure.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, serviceCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { everyPage } from "../list/pages.ts";
import { parseTemplate } from "../list/template.ts";
import { visible } from "../visible.ts";

/** What an id refers to. */
interface Found {
  readonly schema: DescMessage;
  readonly json: unknown;
}

type Find = (
  client: ServiceClient,
  id: string,
  call: { readonly signal: AbortSignal },
) => Promise<Found | undefined>;

/** The kinds of things, in the order in which they are tried. */
const KINDS: Readonly<Record<string, Find>> = {
  sandbox: finder(
    SandboxSchema,
    async (client, sandboxId, call) => (await client.sandboxes.getSandbox({ sandboxId }, call)).sandbox,
  ),
  process: finder(
    ProcessSchema,
    async (client, processId, call) => (await client.processes.getProcess({ processId }, call)).process,
  ),
  run: finder(RunSchema, async (client, runId, call) => (await client.runs.getRun({ runId }, call)).run),
  workspace: finder(
    WorkspaceSchema,
    async (client, workspaceId, call) =>
      (await client.workspaces.getWorkspace({ workspaceId }, call)).workspace,
  ),
  session: finder(SessionSchema, async (client, id, call) => {
    const pages = await everyPage((page) => client.sessions.listSessions(page, call));
    return pages.flatMap(({ sessions }) => sessions).find(({ sessionId }) => sessionId === id);
  }),
};

const NOT_FOUND: ReadonlySet<ErrorReason | undefined> = new Set([
  ErrorReason.SANDBOX_NOT_FOUND,
  ErrorReason.PROCESS_NOT_FOUND,
  ErrorReason.RUN_NOT_FOUND,
  ErrorReason.WORKSPACE_NOT_FOUND,
]);

interface InspectFlags extends ClientFlags {
  readonly type?: string;
  readonly format?: string;
}

/** `berth inspect`: shows everything that the service knows about things. */
export function inspectCommand(host: CommandHost): Command {
  return serviceCommand("inspect")
    .summary("show all details of sandboxes, processes, runs, workspaces or sessions")
    .description(
      "Prints a JSON array of the API's answer for each id, with the API's field names. Looks for an id among sandboxes, " +
        "processes, runs, workspaces and sessions, in this order. An unknown id is reported on stderr, and the exit code is 1.\n\n" +
        "With --format, prints one line for each id instead: json, or a template in which {{.FIELD}} is a field, {{json .FIELD}} " +
        'writes JSON and {{index .FIELD "KEY"}} reads a map.',
    )
    .addOption(new Option("--type <kind>", "look only among these").choices(Object.keys(KINDS)))
    .option("-f, --format <format>", "json, or a template such as '{{.spec.image}}'")
    .argument("<id...>", "their ids")
    .addHelpText(
      "after",
      examples(
        "berth inspect SANDBOX",
        "berth inspect -f '{{.spec.image}} {{.expireTime}}' $(berth ls -q)",
        "berth inspect --type workspace --format '{{.path}}' job",
      ),
    )
    .action(
      host.action((ids: string[], flags: InspectFlags) => {
        if (flags.format !== undefined && flags.format !== "json" && !flags.format.includes("{{")) {
          throw new UsageError(
            `--format: ${JSON.stringify(flags.format)} is not a format; write json or a template, as '{{.state}}'`,
          );
        }
        return withClient(host, flags, EXIT.failed, (client) => inspect(host, client, ids, flags));
      }),
    );
}

async function inspect(
  { io, interrupts: { signal } }: CommandHost,
  client: ServiceClient,
  ids: readonly string[],
  { type, format }: InspectFlags,
): Promise<number> {
  const finds = type === undefined ? Object.values(KINDS) : [KINDS[type] as Find];
  const found: unknown[] = [];
  const missing: string[] = [];
  for (const id of ids) {
    const one = await firstOf(finds, (find) => find(client, id, { signal }));
    if (one === undefined) missing.push(id);
    else if (format === undefined) found.push(one.json);
    else if (format === "json") await writeJson(io.stdout, one.json, signal);
    else {
      const template = parseTemplate<undefined>(format, { schema: one.schema, columns: [] });
      await write(io.stdout, `${template.of({ item: undefined, json: one.json })}\n`, signal);
    }
  }
  if (format === undefined) await write(io.stdout, `${safeJson(found, 2)}\n`, signal);
  for (const id of missing) {
    const what =
      type === undefined ? `nothing with the id ${visible(id)}` : `no ${type} with the id ${visible(id)}`;
    await write(io.stderr, complaint(io, `there is ${what}`));
  }
  return missing.length === 0 ? EXIT.ok : EXIT.failed;
}

function finder<D extends DescMessage>(
  schema: D,
  read: (
    client: ServiceClient,
    id: string,
    call: { readonly signal: AbortSignal },
  ) => Promise<MessageShape<D> | undefined>,
): Find {
  return async (...given) => {
    try {
      const message = await read(...given);
      return message && { schema, json: messageJson(schema, message) };
    } catch (error) {
      if (NOT_FOUND.has(reasonOf(error))) return undefined;
      throw error;
    }
  };
}

async function firstOf<A, B>(
  of: readonly A[],
  ask: (one: A) => Promise<B | undefined>,
): Promise<B | undefined> {
  for (const one of of) {
    const answer = await ask(one);
    if (answer !== undefined) return answer;
  }
  return undefined;
}
