import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { SandboxState } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { parseDuration } from "../../config/values.ts";
import type { ServiceClient } from "../client.ts";
import { EXIT, Failed } from "../exit.ts";
import { explainedFailure } from "../failure.ts";
import { flagValue } from "../flags.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";

interface RmFlags extends ClientFlags {
  readonly grace?: string;
  readonly force?: boolean;
}

/** `berth rm`: deletes sandboxes, each on its own. */
export function rmCommand(host: CommandHost): Command {
  return clientCommand("rm")
    .summary("delete sandboxes")
    .description(
      "Deletes sandboxes and prints the id of each once it is gone. The exit code is 1 where one does not exist.",
    )
    .option("--grace <duration>", "how long running commands may finish, as 5s (default: the service's)")
    .option("-f, --force", "do not mind those that do not exist")
    .argument("<sandbox...>", "ids of the sandboxes")
    .action(
      host.action(async (sandboxIds: string[], flags: RmFlags) => {
        const grace = flagValue("--grace", flags.grace, (text) =>
          durationFromMs(parseDuration(text, { minMs: 0 })),
        );
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const remove = async (sandboxId: string): Promise<Failed | undefined> => {
            try {
              if (!flags.force) await requireSandbox(client, sandboxId, interrupts.signal);
              await client.sandboxes.deleteSandbox({ sandboxId, grace }, { signal: interrupts.signal });
            } catch (error) {
              if (interrupts.signal.aborted) throw error;
              const failure = await explainedFailure(error, client.address, EXIT.failed);
              if (!(failure instanceof Failed)) throw error;
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

/** @throws Failed where it has ended; the call's error where there is none. */
async function requireSandbox(client: ServiceClient, sandboxId: string, signal: AbortSignal): Promise<void> {
  const { sandbox } = await client.sandboxes.getSandbox({ sandboxId }, { signal });
  if (sandbox?.state === SandboxState.TERMINATED)
    throw new Failed(`The sandbox "${sandboxId}" has ended already.`);
}
