import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { parseDuration } from "../../config/values.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed } from "../exit.ts";
import { callFailure } from "../failure.ts";
import { flagValue } from "../flags.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";

interface RmFlags extends ClientFlags {
  readonly grace?: string;
}

/** `berth rm`: deletes sandboxes, each on its own. */
export function rmCommand(host: CommandHost): Command {
  return clientCommand("rm")
    .summary("delete sandboxes")
    .description(
      "Deletes sandboxes and prints the id of each once it is gone. One that does not exist is gone already.",
    )
    .option("--grace <duration>", "how long running commands may finish, as 5s (default: the service's)")
    .argument("<sandbox...>", "ids of the sandboxes")
    .addHelpText("after", examples("berth rm SANDBOX", "berth rm --grace 0s $(berth ls -q -l team=red)"))
    .action(
      host.action(async (sandboxIds: string[], flags: RmFlags) => {
        const grace = flagValue("--grace", flags.grace, (text) =>
          durationFromMs(parseDuration(text, { minMs: 0 })),
        );
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const remove = async (sandboxId: string): Promise<Failed | undefined> => {
            try {
              await client.sandboxes.deleteSandbox({ sandboxId, grace }, { signal: interrupts.signal });
            } catch (error) {
              const failure = callFailure(error, client.address, EXIT.failed);
              if (interrupts.signal.aborted || !(failure instanceof Failed)) throw error;
              if (flags.json)
                await writeJson(io.stdout, { sandboxId, deleted: false, error: failure.message });
              return failure;
            }
            if (flags.json) await writeJson(io.stdout, { sandboxId, deleted: true });
            else await write(io.stdout, `${sandboxId}\n`);
            return undefined;
          };
          const failures = (await Promise.all(sandboxIds.map(remove))).filter(
            (failure) => failure !== undefined,
          );
          // The same failure of many sandboxes, as of a service that is not there, is printed once.
          const distinct = new Map(failures.map((failure) => [failure.message, failure]));
          for (const { message, hint } of distinct.values()) {
            await write(io.stderr, `berth: ${message}\n${hint ? `${hint}\n` : ""}`);
          }
          return failures.length === 0 ? EXIT.ok : EXIT.failed;
        });
      }),
    );
}
