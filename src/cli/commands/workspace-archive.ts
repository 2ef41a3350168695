import type { Command } from "commander";
import { ImportWorkspaceResponseSchema } from "../../../gen/ts/berth/v1/workspace_pb.js";
import { feeding, inMessages } from "../copy/chunks.ts";
import { EXIT, UsageError } from "../exit.ts";
import { formatSize } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, serviceCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { messageJson } from "../message-json.ts";

/** `berth workspace export`: all of a workspace as a tar on stdout. */
export function exportCommand(host: CommandHost): Command {
  return serviceCommand("export")
    .argument("<workspace>", "its id")
    .summary("write a workspace to stdout as a tar")
    .action(
      host.action(async (workspaceId: string, flags: ClientFlags) => {
        const { stdout } = host.io;
        if (stdout.isTTY)
          throw new UsageError("a tar is nothing to look at: redirect it, as > workspace.tar");
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

/** `berth workspace import`: a tar from stdin into a workspace. */
export function importCommand(host: CommandHost): Command {
  return clientCommand("import")
    .argument("<workspace>", "its id; made where there is none")
    .summary("unpack a tar from stdin into a workspace")
    .option("--replace", "in place of all that is there")
    .action(
      host.action(async (workspaceId: string, flags: ClientFlags & { readonly replace?: boolean }) => {
        const { stdin, stdout } = host.io;
        if (stdin.isTTY) throw new UsageError("the tar comes from stdin: redirect it, as < workspace.tar");
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
