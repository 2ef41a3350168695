import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type UpdateSandboxRequestSchema,
  UpdateSandboxResponseSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { parseDuration } from "../../config/values.ts";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { UsageError } from "../exit.ts";
import { collect, flagValue, keyValues } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand } from "../host.ts";

interface UpdateFlags extends ClientFlags {
  readonly label?: readonly string[];
  readonly removeLabel?: readonly string[];
  readonly idleTimeout?: string;
  readonly maxLifetime?: string;
}

type Change = Pick<MessageInitShape<typeof UpdateSandboxRequestSchema>, "idleTimeout" | "maxLifetime">;

/** `berth update`: changes labels and deadlines of sandboxes. */
export function updateCommand(host: CommandHost): Command {
  return clientCommand("update")
    .summary("change labels, idle timeout or lifetime of sandboxes")
    .description(
      "Changes sandboxes that have not ended, and prints their ids. Labels that are not named stay. If two updates change labels " +
        "at the same time, one may be lost. Nothing else about a sandbox can be changed after its creation.",
    )
    .option("-l, --label <KEY=VALUE>", "set a label, may be repeated", collect)
    .option("--remove-label <KEY>", "remove a label, may be repeated", collect)
    .option(
      "--idle-timeout <duration>",
      "how long it may stay unused, such as 1h, or the word default for the service's",
    )
    .option(
      "--max-lifetime <duration>",
      "how long it may live, counted from its creation, or the word default for the service's",
    )
    .argument("<sandbox...>", "ids of the sandboxes")
    .addHelpText(
      "after",
      examples(
        "berth update --idle-timeout 4h SANDBOX",
        "berth update -l team=red --remove-label draft SANDBOX SANDBOX",
        "berth update --max-lifetime default SANDBOX",
      ),
    )
    .action(
      host.action((sandboxIds: string[], flags: UpdateFlags) => {
        const { change, paths } = changeOf(flags);
        const changeLabels = labelsOf(flags);
        if (changeLabels === undefined && paths.length === 0) {
          throw new UsageError(
            "say what to change: --label, --remove-label, --idle-timeout or --max-lifetime",
          );
        }
        return forEachId(host, sandboxIds, {
          flags,
          name: "sandboxId",
          act: async (client, sandboxId, signal) => {
            const labels = changeLabels && {
              labels: changeLabels(
                (await client.sandboxes.getSandbox({ sandboxId }, { signal })).sandbox?.spec?.labels,
              ),
            };
            const updateMask = { paths: labels ? ["labels", ...paths] : paths };
            const request = { sandboxId, updateMask, ...change, ...labels };
            const answer = await client.sandboxes.updateSandbox(request, { signal });
            return messageJson(UpdateSandboxResponseSchema, answer);
          },
        });
      }),
    );
}

/** The durations that the flags set. `default` means the service's default. */
function changeOf({ idleTimeout, maxLifetime }: UpdateFlags): {
  readonly change: Change;
  readonly paths: string[];
} {
  const read = (text: string) => (text === "default" ? undefined : durationFromMs(parseDuration(text)));
  return {
    change: {
      idleTimeout: flagValue("--idle-timeout", idleTimeout, read),
      maxLifetime: flagValue("--max-lifetime", maxLifetime, read),
    },
    paths: [
      ...(idleTimeout === undefined ? [] : ["idle_timeout"]),
      ...(maxLifetime === undefined ? [] : ["max_lifetime"]),
    ],
  };
}

type Labels = Readonly<Record<string, string>>;

/** How the flags change labels. Undefined: not at all. */
function labelsOf({
  label,
  removeLabel = [],
}: UpdateFlags): ((before: Labels | undefined) => Labels) | undefined {
  const set = keyValues("--label", label);
  const removed = new Set(removeLabel);
  const both = Object.keys(set).find((key) => removed.has(key));
  if (both !== undefined)
    throw new UsageError(`--remove-label: ${JSON.stringify(both)} is set by --label as well`);
  if (label === undefined && removed.size === 0) return undefined;
  return (before = {}) =>
    Object.fromEntries([
      ...Object.entries(before).filter(([key]) => !removed.has(key)),
      ...Object.entries(set),
    ]);
}
