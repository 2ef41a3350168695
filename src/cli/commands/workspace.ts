import { type DescMessage, type MessageShape, create as make } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import {
  AddTraceRefResponseSchema,
  type BrokenWorkspace,
  CleanupWorkspaceResponseSchema,
  CreateWorkspaceResponseSchema,
  EnsureWorkspaceSandboxResponseSchema,
  ForkWorkspaceResponseSchema,
  GetWorkspaceResponseSchema,
  ImportWorkspaceResponseSchema,
  ListWorkspacesResponseSchema,
  LookupTraceResponseSchema,
  QuotaEnforcement,
  RemoveTraceRefResponseSchema,
  StopWorkspaceSandboxResponseSchema,
  type Workspace,
  WorkspaceSchema,
} from "../../../gen/ts/berth/v1/workspace_pb.js";
import type { ServiceClient } from "../client.ts";
import { remarkLine } from "../colour.ts";
import { feeding, inMessages } from "../copy/local-file.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, UsageError } from "../exit.ts";
import { formatSize, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, serviceCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";
import { addSpecFlags, type SpecFlags, specOf } from "../spec-flags.ts";
import { visible } from "../visible.ts";
import { diffCommand } from "./workspace-diff.ts";

/** `berth workspace export`: writes a workspace to stdout as a tar. */
function exportCommand(host: CommandHost): Command {
  return serviceCommand("export")
    .argument("<workspace>", "its id")
    .summary("write a workspace to stdout as a tar")
    .description("Writes the files of a workspace to stdout as an uncompressed tar.")
    .addHelpText("after", examples("berth workspace export job > job.tar"))
    .action(
      host.action(async (workspaceId: string, flags: ClientFlags) => {
        const { stdout } = host.io;
        if (stdout.isTTY)
          throw new UsageError("a tar is not written to a terminal: redirect it, as in > workspace.tar");
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { signal } = host.interrupts;
          for await (const { chunk } of client.workspaces.exportWorkspace({ workspaceId }, { signal })) {
            await write(stdout, chunk, signal);
          }
          return EXIT.ok;
        });
      }),
    );
}

/** `berth workspace import`: unpacks a tar from stdin into a workspace. */
function importCommand(host: CommandHost): Command {
  return clientCommand("import")
    .argument("<workspace>", "its id; created if it does not exist")
    .summary("unpack a tar from stdin into a workspace")
    .description(
      "Unpacks an uncompressed tar from stdin into a workspace, and prints what it had. Nothing is unpacked before the whole tar has been checked.",
    )
    .option("--replace", "replace everything in the workspace")
    .addHelpText(
      "after",
      examples("berth workspace import job < job.tar", "tar c . | berth workspace import --replace job"),
    )
    .action(
      host.action(async (workspaceId: string, flags: ClientFlags & { readonly replace?: boolean }) => {
        const { stdin, stdout } = host.io;
        if (stdin.isTTY)
          throw new UsageError("the tar is read from stdin: redirect it, as in < workspace.tar");
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { signal } = host.interrupts;
          const header = { workspaceId, replace: flags.replace === true };
          const answer = await feeding(inMessages(stdin), (chunks) =>
            client.workspaces.importWorkspace(messages(header, chunks), { signal }),
          );
          const { entryCount, sizeBytes } = answer;
          if (flags.json) await writeJson(stdout, messageJson(ImportWorkspaceResponseSchema, answer));
          else await write(stdout, `${entryCount} entries, ${formatSize(Number(sizeBytes))}\n`);
          return EXIT.ok;
        });
      }),
    );
}

async function* messages(
  header: { readonly workspaceId: string; readonly replace: boolean },
  chunks: AsyncIterable<Uint8Array>,
) {
  yield { part: { case: "header" as const, value: header } };
  for await (const chunk of chunks) {
    yield { part: { case: "chunk" as const, value: chunk as Uint8Array<ArrayBuffer> } };
  }
}

/** `berth workspace`: manages directories that outlive sandboxes. */
export function workspaceCommand(host: CommandHost): Command {
  const command = new Command("workspace")
    .summary("keep directories that outlive sandboxes")
    .description(
      "Workspaces are directories that outlive the sandboxes that mount them. You choose a workspace's id.",
    )
    .addHelpText(
      "after",
      examples(
        "berth workspace create job",
        "berth run --workspace job -- touch file",
        "berth workspace export job > job.tar",
      ),
    );
  for (const subcommand of [
    createCommand(host),
    forkCommand(host),
    diffCommand(host),
    showCommand(host),
    lsCommand(host),
    ensureCommand(host),
    stopCommand(host),
    referenceCommand(host, "add"),
    referenceCommand(host, "remove"),
    lookupCommand(host),
    cleanupCommand(host),
    exportCommand(host),
    importCommand(host),
  ]) {
    command.addCommand(subcommand);
  }
  return command;
}

function createCommand(host: CommandHost): Command {
  return clientCommand("create")
    .argument("<workspace>", "its id")
    .summary("create a workspace and print its directory")
    .description("Creates a workspace and prints its directory. A workspace that exists stays as it is.")
    .addHelpText("after", examples("berth workspace create job"))
    .action(
      act(host, CreateWorkspaceResponseSchema, {
        call: (client, [workspaceId], signal) =>
          client.workspaces.createWorkspace({ workspaceId }, { signal }),
        text: ({ workspace }) => `${workspace?.path}\n`,
      }),
    );
}

function forkCommand(host: CommandHost): Command {
  return clientCommand("fork")
    .argument("<source>", "id of the workspace to copy")
    .argument("<workspace>", "id of the new workspace")
    .summary("create a workspace as a copy of another one, and print its directory")
    .description(
      "Creates a workspace with the files of another one, and prints its directory. References and the sandbox are not copied.",
    )
    .addHelpText("after", examples("berth workspace fork job job-2"))
    .action(
      act(host, ForkWorkspaceResponseSchema, {
        call: (client, [sourceWorkspaceId, workspaceId], signal) =>
          client.workspaces.forkWorkspace({ sourceWorkspaceId, workspaceId }, { signal }),
        text: ({ workspace }) => `${workspace?.path}\n`,
      }),
    );
}

function showCommand(host: CommandHost): Command {
  return clientCommand("show")
    .argument("<workspace>", "its id")
    .summary("show a workspace")
    .description("Shows a workspace: its directory, sandbox, traces, size and quota.")
    .option("--measure", "measure its size again")
    .addHelpText("after", examples("berth workspace show --measure job"))
    .action(
      act(host, GetWorkspaceResponseSchema, {
        call: (client, [workspaceId], signal, { measure }: { measure?: boolean }) =>
          client.workspaces.getWorkspace({ workspaceId, measureSize: measure === true }, { signal }),
        text: ({ workspace }) => (workspace ? details(workspace) : ""),
      }),
    );
}

const WORKSPACES: ListKind<typeof ListWorkspacesResponseSchema, typeof WorkspaceSchema> = {
  answer: ListWorkspacesResponseSchema,
  item: WorkspaceSchema,
  itemsOf: ({ workspaces }) => workspaces,
  idOf: ({ workspaceId }) => visible(workspaceId),
  columns: [
    { heading: "ID", text: ({ workspaceId }) => visible(workspaceId) },
    { heading: "REFS", text: ({ refCount }) => String(refCount) },
    {
      heading: "SIZE",
      text: ({ sizeBytes }) => (sizeBytes === undefined ? "" : formatSize(Number(sizeBytes))),
      tone: ({ overQuota }) => (overQuota ? "bad" : undefined),
    },
    { heading: "SANDBOX", text: ({ sandboxId }) => sandboxId },
  ],
};

function lsCommand(host: CommandHost): Command {
  return listCommand("ls")
    .summary("list workspaces")
    .description("Lists workspaces by id. Broken ones are reported on stderr.")
    .addHelpText("after", examples("berth workspace ls", "berth workspace ls --format '{{.ID}} {{.path}}'"))
    .action(
      listAction(
        host,
        WORKSPACES,
        async (client, { signal }) => {
          const pages = await everyPage((page) => client.workspaces.listWorkspaces(page, { signal }));
          return make(ListWorkspacesResponseSchema, {
            workspaces: pages.flatMap(({ workspaces }) => workspaces),
            broken: pages.flatMap(({ broken }) => broken),
          });
        },
        ({ broken }) => broken.map(complaint).join(""),
      ),
    );
}

function ensureCommand(host: CommandHost): Command {
  return addSpecFlags(clientCommand("ensure"))
    .argument("<workspace>", "its id")
    .summary("make sure that a workspace has a running sandbox, and print the sandbox's id")
    .description(
      "Makes sure that a workspace has a running sandbox, and prints the sandbox's id. Creates the workspace if it does not exist. The options apply only to a new sandbox.",
    )
    .addHelpText(
      "after",
      examples(
        "berth workspace ensure job",
        "berth exec $(berth workspace ensure --memory 2GiB job) -- make",
      ),
    )
    .action(
      act(host, EnsureWorkspaceSandboxResponseSchema, {
        call: (client, [workspaceId], signal, flags: SpecFlags) =>
          client.workspaces.ensureWorkspaceSandbox({ workspaceId, spec: specOf(flags) }, { signal }),
        text: ({ sandbox, sandboxUnavailableReason }) => {
          if (sandbox === undefined)
            throw new Failed(`the workspace has no sandbox: ${sandboxUnavailableReason}`);
          return `${sandbox.sandboxId}\n`;
        },
      }),
    );
}

function stopCommand(host: CommandHost): Command {
  return clientCommand("stop")
    .argument("<workspace>", "its id")
    .summary("delete a workspace's sandbox; its directory stays")
    .description("Deletes the sandbox of a workspace. The directory and the references stay.")
    .addHelpText("after", examples("berth workspace stop job"))
    .action(
      act(host, StopWorkspaceSandboxResponseSchema, {
        call: (client, [workspaceId], signal) =>
          client.workspaces.stopWorkspaceSandbox({ workspaceId }, { signal }),
        text: () => "",
      }),
    );
}

function referenceCommand(host: CommandHost, what: "add" | "remove"): Command {
  const command = clientCommand(`${what}-ref`)
    .argument("<workspace>", "its id")
    .argument("<trace>", "id of the trace")
    .addHelpText("after", examples(`berth workspace ${what}-ref job trace-1`));
  if (what === "add") {
    return command
      .summary("record that a trace uses a workspace")
      .description(
        "Records that a trace uses a workspace, and creates the workspace if it does not exist. A trace belongs to one workspace: if it belonged to another, the command says so.",
      )
      .action(
        act(host, AddTraceRefResponseSchema, {
          call: (client, [workspaceId, traceId], signal) =>
            client.workspaces.addTraceRef({ workspaceId, traceId }, { signal }),
          text: ({ previousWorkspaceId: previous }) =>
            previous === "" ? "" : `moved from ${visible(previous)}\n`,
        }),
      );
  }
  return command
    .summary("record that a trace no longer uses a workspace")
    .description("Records that a trace no longer uses a workspace.")
    .action(
      act(host, RemoveTraceRefResponseSchema, {
        call: (client, [workspaceId, traceId], signal) =>
          client.workspaces.removeTraceRef({ workspaceId, traceId }, { signal }),
        text: () => "",
      }),
    );
}

function lookupCommand(host: CommandHost): Command {
  return clientCommand("lookup")
    .argument("<trace>", "id of the trace")
    .summary("find the workspace of a trace and print its id")
    .description("Finds the workspace that a trace belongs to, and prints its id.")
    .addHelpText("after", examples("berth workspace lookup trace-1"))
    .action(
      act(host, LookupTraceResponseSchema, {
        call: (client, [traceId], signal) => client.workspaces.lookupTrace({ traceId }, { signal }),
        text: ({ workspace }) => `${visible(workspace?.workspaceId ?? "")}\n`,
      }),
    );
}

function cleanupCommand(host: CommandHost): Command {
  return clientCommand("cleanup")
    .argument("<workspace>", "its id")
    .summary("end the use of a workspace: delete its sandboxes, clear its references")
    .description(
      "Deletes every sandbox that mounts a workspace, and clears the workspace's references. The workspace stays, unless --force deletes it. Without --force, refuses a workspace that traces refer to.",
    )
    .option("--force", "clean up even if traces refer to it, and delete the workspace with everything in it")
    .addHelpText("after", examples("berth workspace cleanup job", "berth workspace cleanup --force job"))
    .action(
      act(host, CleanupWorkspaceResponseSchema, {
        call: (client, [workspaceId], signal, { force }: { force?: boolean }) =>
          client.workspaces.cleanupWorkspace({ workspaceId, force: force === true }, { signal }),
        text: () => "",
      }),
    );
}

/** Turns a call into a command's action, which prints the response as JSON or as text. */
function act<D extends DescMessage, F extends object>(
  host: CommandHost,
  schema: D,
  {
    call,
    text,
  }: {
    readonly call: (
      client: ServiceClient,
      args: [string, string],
      signal: AbortSignal,
      flags: F,
    ) => Promise<MessageShape<D>>;
    readonly text: (answer: MessageShape<D>) => string;
  },
) {
  return host.action(async (...given: unknown[]) => {
    // Commander passes the flags and the command after the arguments.
    const flags = given.at(-2) as ClientFlags & F;
    const args = given.slice(0, -2) as [string, string];
    return withClient(host, flags, EXIT.failed, async (client) => {
      const { signal } = host.interrupts;
      const answer = await call(client, args, signal, flags);
      if (flags.json) await writeJson(host.io.stdout, messageJson(schema, answer), signal);
      else await write(host.io.stdout, text(answer), signal);
      return EXIT.ok;
    });
  });
}

function complaint({ workspaceId, path, message }: BrokenWorkspace): string {
  return remarkLine(`${visible(workspaceId === "" ? path : workspaceId)}: ${message}`);
}

function details(workspace: Workspace): string {
  const { sizeBytes, quotaBytes, quotaEnforcement, overQuota, hasShared, createTime, updateTime } = workspace;
  const quota =
    quotaBytes === 0n
      ? "none"
      : `${formatSize(Number(quotaBytes))}, ${formatWord(QuotaEnforcement[quotaEnforcement])}${overQuota ? ", exceeded" : ""}`;
  const lines: [string, string][] = [
    ["id", visible(workspace.workspaceId)],
    ["directory", workspace.path],
    ["sandbox", workspace.sandboxId || "none"],
    ["traces", workspace.traceRefs.map(visible).join(", ") || "none"],
    ["size", sizeBytes === undefined ? "not measured yet" : formatSize(Number(sizeBytes))],
    ["quota", quota],
    ["shared", hasShared ? "the owner's files at /shared" : "nothing"],
    ["created", createTime ? timestampDate(createTime).toISOString() : ""],
    ["changed", updateTime ? timestampDate(updateTime).toISOString() : ""],
  ];
  return lines.map(([name, value]) => `${name.padEnd(10)} ${value}\n`).join("");
}
