import type { Command } from "commander";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { parseSignal } from "../../config/values.ts";
import type { ServiceClient } from "../client.ts";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { reasonOf } from "../failure.ts";
import { flagValue, isProcessId } from "../flags.ts";
import { type ClientFlags, type CommandHost, clientCommand } from "../host.ts";
import { everyPage } from "../list/pages.ts";

interface KillFlags extends ClientFlags {
  readonly signal: string;
}

/** `berth kill`: sends a signal to processes. */
export function killCommand(host: CommandHost): Command {
  return clientCommand("kill")
    .summary("send a signal to processes, or to all processes of sandboxes")
    .description(
      "Sends a signal to each process and everything it started, and prints the ids. For a sandbox, every process that `berth " +
        "ps` lists gets the signal, and the sandbox stays. To end a sandbox, see `berth rm`.",
    )
    .option("-s, --signal <signal>", "its name or number, such as TERM, SIGINT or 9", "KILL")
    .argument("<process|sandbox...>", "ids of processes or sandboxes")
    .addHelpText(
      "after",
      examples("berth kill PROCESS", "berth kill -s TERM PROCESS", "berth kill --signal INT SANDBOX"),
    )
    .action(
      host.action((ids: string[], flags: KillFlags) => {
        const number = flagValue("--signal", flags.signal, parseSignal) as number;
        return forEachId(host, ids, {
          flags,
          name: "id",
          act: async (client, id, signal) => {
            if (!isProcessId(id))
              return { sandboxId: id, signaled: await signalAll(client, id, number, signal) };
            await client.processes.signalProcess({ processId: id, signal: number }, { signal });
            return { processId: id, signaled: [id] };
          },
        });
      }),
    );
}

/** Sends a signal to every process of a sandbox. Returns the ids of those that got it. */
async function signalAll(
  client: ServiceClient,
  sandboxId: string,
  number: number,
  signal: AbortSignal,
): Promise<string[]> {
  const pages = await everyPage((page) => client.processes.listProcesses({ sandboxId, ...page }, { signal }));
  const signaled = await Promise.all(
    pages
      .flatMap(({ processes }) => processes)
      .map(async ({ processId }) => {
        try {
          await client.processes.signalProcess({ processId, signal: number }, { signal });
          return [processId];
        } catch (error) {
          // It may have ended meanwhile.
          if (reasonOf(error) === ErrorReason.PROCESS_STATE) return [];
          throw error;
        }
      }),
  );
  return signaled.flat();
}
