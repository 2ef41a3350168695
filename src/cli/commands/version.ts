import type { Command } from "commander";
import type { ServiceClient } from "../client.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { explainedFailure } from "../failure.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { visible } from "../visible.ts";

/** How long the service may take to answer. */
const ANSWER_TIMEOUT_MS = 10_000;

/** `berth version`: shows the versions of this program and of the service. */
export function versionCommand(host: CommandHost): Command {
  return clientCommand("version")
    .summary("show the versions of this program and of the service")
    .description("Shows the version of this program, and that of the service if one answers.")
    .addHelpText("after", examples("berth version", "berth version --json"))
    .action(
      host.action(async (flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const { io, version } = host;
          const service = await serviceVersion(client, host.interrupts.signal);
          if (flags.json) await writeJson(io.stdout, { client: { version }, service });
          else await write(io.stdout, `client   ${version}\nservice  ${describe(service)}\n`);
          return EXIT.ok;
        }),
      ),
    );
}

/** The service's version, or why it is not known. */
type ServiceVersion =
  | { readonly address: string; readonly version: string }
  | { readonly address: string; readonly error: string };

async function serviceVersion(client: ServiceClient, signal: AbortSignal): Promise<ServiceVersion> {
  const address = client.address.text;
  try {
    const stats = await client.sandboxes.getStats({}, { timeoutMs: ANSWER_TIMEOUT_MS, signal });
    // An older service does not report it.
    return { address, version: stats.serverVersion || "unknown" };
  } catch (error) {
    if (signal.aborted) throw error;
    const failure = await explainedFailure(error, client.address, EXIT.failed);
    return { address, error: failure instanceof Error ? failure.message : String(failure) };
  }
}

function describe(service: ServiceVersion): string {
  return visible(
    "version" in service ? `${service.version} at ${service.address}` : `none: ${service.error}`,
  );
}
