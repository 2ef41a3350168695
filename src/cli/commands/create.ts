import type { Command } from "commander";
import { SandboxSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { newId } from "../../base/ids.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { idValue } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { makeSandbox, NO_DISPLAY, textDisplay } from "../make-sandbox.ts";
import { addSpecFlags, addWorkspaceFlag, type SpecFlags, specOf } from "../spec-flags.ts";

interface CreateFlags extends ClientFlags, SpecFlags {
  readonly id?: string;
}

/** `berth create`: creates a sandbox for further commands. */
export function createCommand(host: CommandHost): Command {
  return addWorkspaceFlag(addSpecFlags(clientCommand("create")))
    .summary("create a sandbox and print its id")
    .description("Creates a sandbox, ready to run commands, and prints its id.")
    .option("--id <id>", "id of the sandbox (default: a new one)")
    .option("--idle-timeout <duration>", "how long it may stay unused, such as 1h (default: the service's)")
    .option("--max-lifetime <duration>", "maximum lifetime, used or not (default: the service's)")
    .addHelpText(
      "after",
      examples(
        "berth create",
        "berth create --id job-7 -l team=red --idle-timeout 4h",
        "berth create --image node:24 --workspace job -v cache:/root/.npm",
      ),
    )
    .action(
      host.action(async (flags: CreateFlags) => {
        const spec = specOf(flags);
        const sandboxId = idValue("--id", flags.id) ?? newId("sbx");
        return withClient(host, flags, EXIT.failed, async (client) => {
          host.interrupts.lastWords = `The sandbox may still exist. Delete it with: berth rm ${sandboxId}`;
          const { signal } = host.interrupts;
          const display = flags.json ? NO_DISPLAY : textDisplay(host.io);
          const sandbox = await makeSandbox(client, { sandboxId, spec, display, signal });
          host.interrupts.made = `The sandbox was created. Delete it with: berth rm ${sandboxId}`;
          if (flags.json) await writeJson(host.io.stdout, { sandbox: messageJson(SandboxSchema, sandbox) });
          else await write(host.io.stdout, `${sandboxId}\n`);
          return EXIT.ok;
        });
      }),
    );
}
