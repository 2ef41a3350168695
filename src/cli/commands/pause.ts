import type { Command } from "commander";
import {
  PauseSandboxResponseSchema,
  ResumeSandboxResponseSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "../client.ts";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand } from "../host.ts";

/** `berth pause`: pauses sandboxes. */
export function pauseCommand(host: CommandHost): Command {
  const command = clientCommand("pause")
    .summary("freeze every process of sandboxes")
    .description(
      "Freezes every process of sandboxes and prints their ids. A paused sandbox stays paused. Idle timeout and lifetime keep counting.",
    )
    .addHelpText("after", examples("berth pause SANDBOX", "berth pause $(berth ls -q -l team=red)"));
  return ofSandboxes(host, command, async ({ sandboxes }, sandboxId, signal) =>
    messageJson(PauseSandboxResponseSchema, await sandboxes.pauseSandbox({ sandboxId }, { signal })),
  );
}

/** `berth resume`: resumes paused sandboxes. */
export function resumeCommand(host: CommandHost): Command {
  const command = clientCommand("resume")
    .summary("resume the processes of paused sandboxes")
    .description(
      "Resumes the processes of paused sandboxes and prints their ids. A running sandbox keeps running.",
    )
    .addHelpText("after", examples("berth resume SANDBOX", "berth resume $(berth ls -q --state paused)"));
  return ofSandboxes(host, command, async ({ sandboxes }, sandboxId, signal) =>
    messageJson(ResumeSandboxResponseSchema, await sandboxes.resumeSandbox({ sandboxId }, { signal })),
  );
}

/** Sets a command up to act on each sandbox that its arguments name. */
function ofSandboxes(
  host: CommandHost,
  command: Command,
  act: (client: ServiceClient, sandboxId: string, signal: AbortSignal) => Promise<unknown>,
): Command {
  return command
    .argument("<sandbox...>", "ids of the sandboxes")
    .action(
      host.action((sandboxIds: string[], flags: ClientFlags) =>
        forEachId(host, sandboxIds, { flags, name: "sandboxId", act }),
      ),
    );
}
