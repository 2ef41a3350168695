import type { Command } from "commander";
import {
  PauseSandboxResponseSchema,
  ResumeSandboxResponseSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";

/** `berth pause`: freezes sandboxes. */
export function pauseCommand(host: CommandHost): Command {
  return clientCommand("pause")
    .summary("freeze every process of sandboxes")
    .description(
      "Freezes every process of sandboxes and prints the ids. One that is paused stays paused. Idle timeout and lifetime go on.",
    )
    .argument("<sandbox...>", "ids of the sandboxes")
    .addHelpText("after", examples("berth pause SANDBOX", "berth pause $(berth ls -q -l team=red)"))
    .action(
      host.action((sandboxIds: string[], flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, (client) =>
          forEachId(host, client, sandboxIds, {
            flags,
            name: "sandboxId",
            act: async (sandboxId) => {
              const { signal } = host.interrupts;
              return messageJson(
                PauseSandboxResponseSchema,
                await client.sandboxes.pauseSandbox({ sandboxId }, { signal }),
              );
            },
          }),
        ),
      ),
    );
}

/** `berth resume`: lets paused sandboxes go on. */
export function resumeCommand(host: CommandHost): Command {
  return clientCommand("resume")
    .summary("let the processes of paused sandboxes go on")
    .description(
      "Lets the processes of paused sandboxes go on and prints the ids. One that runs keeps running.",
    )
    .argument("<sandbox...>", "ids of the sandboxes")
    .addHelpText("after", examples("berth resume SANDBOX", "berth resume $(berth ls -q --state paused)"))
    .action(
      host.action((sandboxIds: string[], flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, (client) =>
          forEachId(host, client, sandboxIds, {
            flags,
            name: "sandboxId",
            act: async (sandboxId) => {
              const { signal } = host.interrupts;
              return messageJson(
                ResumeSandboxResponseSchema,
                await client.sandboxes.resumeSandbox({ sandboxId }, { signal }),
              );
            },
          }),
        ),
      ),
    );
}
