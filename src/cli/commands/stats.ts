import { type Duration, durationMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type GetStatsResponse,
  GetStatsResponseSchema,
  IsolationLevel,
  type SharedDirectoryUsage,
  type StorageUsage,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { formatDuration, formatSize, formatTable, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";

/** `berth stats`: the figures of the service. */
export function statsCommand(host: CommandHost): Command {
  return clientCommand("stats")
    .summary("show how the service stands")
    .description("Shows how many sandboxes there are, how many operations run, and what engine runs them.")
    .option("--measure", "measure the shared directory again")
    .addHelpText("after", examples("berth stats", "berth stats --measure --json"))
    .action(
      host.action(async (flags: ClientFlags & { readonly measure?: boolean }) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const request = { measureSharedDirectory: flags.measure === true };
          const stats = await client.sandboxes.getStats(request, { signal: host.interrupts.signal });
          const { stdout } = host.io;
          if (flags.json) await writeJson(stdout, messageJson(GetStatsResponseSchema, stats));
          else await write(stdout, formatTable(["WHAT", "VALUE"], rows(stats)));
          return EXIT.ok;
        }),
      ),
    );
}

function rows(stats: GetStatsResponse): string[][] {
  const { engine } = stats;
  const active = stats.sandboxes.filter(({ isActive }) => isActive).length;
  const lines = [
    ["sandboxes", `${stats.totalSandboxes} of ${stats.maxSandboxes}, ${active} in use`],
    ["active operations", String(stats.activeOperations)],
    ["idle timeout", span(stats.idleTimeout)],
    ["cleanup interval", span(stats.cleanupInterval)],
  ];
  if (stats.transcripts) lines.push(["output kept", usage(stats.transcripts)]);
  if (stats.answers) lines.push(["answers kept", usage(stats.answers)]);
  if (stats.sharedDirectory) lines.push(["shared directory", shared(stats.sharedDirectory)]);
  for (const { image, resourceType, ready, target } of stats.warmPools) {
    lines.push(["warm pool", `${resourceType || image}: ${ready} of ${target} ready`]);
  }
  if (engine) {
    lines.push(["engine", `${engine.name} ${engine.version}${engine.available ? "" : ", does not answer"}`]);
    lines.push(["isolation", formatWord(IsolationLevel[engine.isolation])]);
    lines.push(["capabilities", engine.capabilities.map(formatWord).join(", ")]);
  }
  if (stats.isShuttingDown) lines.push(["state", "shutting down"]);
  return lines;
}

function usage({ usedBytes, limitBytes }: StorageUsage): string {
  return `${formatSize(Number(usedBytes))} of ${formatSize(Number(limitBytes))}`;
}

function shared({ sizeBytes, quotaBytes, enforced, overQuota }: SharedDirectoryUsage): string {
  const how = `${enforced ? "enforced" : "watched"}${overQuota ? ", exceeded" : ""}`;
  return `${formatSize(Number(sizeBytes))} of ${formatSize(Number(quotaBytes))}, ${how}`;
}

function span(duration: Duration | undefined): string {
  return duration ? formatDuration(durationMs(duration)) : "none";
}
