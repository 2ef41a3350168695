import type { Command } from "commander";
import { SandboxState } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "../client.ts";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { Failed } from "../exit.ts";
import { durationValue } from "../flags.ts";
import { type ClientFlags, type CommandHost, clientCommand } from "../host.ts";

interface RmFlags extends ClientFlags {
  readonly grace?: string;
  readonly force?: boolean;
}

/** `berth rm`: deletes sandboxes, independently of each other. */
export function rmCommand(host: CommandHost): Command {
  return clientCommand("rm")
    .summary("delete sandboxes")
    .description(
      "Deletes sandboxes and prints the id of each once it is gone. The exit code is 1 if one does not exist.",
    )
    .option(
      "--grace <duration>",
      "how long to wait for running commands, such as 5s (default: the service's)",
    )
    .option("-f, --force", "ignore those that do not exist")
    .argument("<sandbox...>", "ids of the sandboxes")
    .addHelpText("after", examples("berth rm SANDBOX", "berth rm -f --grace 0s $(berth ls -q -l team=red)"))
    .action(
      host.action((sandboxIds: string[], flags: RmFlags) => {
        const grace = durationValue("--grace", flags.grace, 0);
        return forEachId(host, sandboxIds, {
          flags,
          name: "sandboxId",
          failed: { deleted: false },
          act: async (client, sandboxId, signal) => {
            if (!flags.force) await requireSandbox(client, sandboxId, signal);
            await client.sandboxes.deleteSandbox({ sandboxId, grace }, { signal });
            return { sandboxId, deleted: true };
          },
        });
      }),
    );
}

/** @throws Failed if the sandbox has ended; the call's error if there is none. */
async function requireSandbox(client: ServiceClient, sandboxId: string, signal: AbortSignal): Promise<void> {
  const { sandbox } = await client.sandboxes.getSandbox({ sandboxId }, { signal });
  if (sandbox?.state === SandboxState.TERMINATED)
    throw new Failed(`The sandbox "${sandboxId}" has ended already.`);
}
