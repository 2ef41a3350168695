import { type Duration, durationMs, timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type GetStatsResponse,
  GetStatsResponseSchema,
  IsolationLevel,
  type SharedDirectoryUsage,
  type StorageUsage,
  WaitReason,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { formatDuration, formatSize, formatTable, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { visible } from "../visible.ts";

const MAX_WAITING = 10;
const MAX_MESSAGE = 200;

/** `berth stats`: shows the service's figures. */
export function statsCommand(host: CommandHost): Command {
  return clientCommand("stats")
    .summary("show the state of the service")
    .description("Shows how many sandboxes there are, how many operations run, and what engine runs them.")
    .option("--measure", "measure the shared directory again")
    .addHelpText("after", examples("berth stats", "berth stats --measure --json"))
    .action(
      host.action(async (flags: ClientFlags & { readonly measure?: boolean }) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const request = { measureSharedDirectory: flags.measure === true };
          const { signal } = host.interrupts;
          const stats = await client.sandboxes.getStats(request, { signal });
          const { stdout } = host.io;
          if (flags.json) await writeJson(stdout, messageJson(GetStatsResponseSchema, stats), signal);
          else await write(stdout, formatTable(["WHAT", "VALUE"], statsRows(stats)), signal);
          return EXIT.ok;
        }),
      ),
    );
}

/** The lines of `berth stats`. */
export function statsRows(stats: GetStatsResponse): string[][] {
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
  for (const { image, resourceType, ready, target, problem } of stats.warmPools) {
    lines.push(["warm pool", `${oneLine(resourceType || image)}: ${ready} of ${target} ready`]);
    if (problem !== "") lines.push(["warm pool", `${oneLine(resourceType || image)}: ${oneLine(problem)}`]);
  }
  lines.push(...waitingRows(stats));
  if (engine) {
    lines.push(["engine", `${engine.name} ${engine.version}${engine.available ? "" : ", does not answer"}`]);
    lines.push(["isolation", formatWord(IsolationLevel[engine.isolation])]);
    lines.push(["capabilities", engine.capabilities.map(formatWord).join(", ")]);
  }
  if (stats.isShuttingDown) lines.push(["state", "shutting down"]);
  return lines;
}

/** The longest waits. `--json` has all of them. */
function waitingRows({ waitingSandboxes, waiting }: GetStatsResponse): string[][] {
  if (waitingSandboxes === 0) return [];
  const lines = waiting
    .slice(0, MAX_WAITING)
    .map(({ sandboxId, warmPool, image, reason, message, since }) => {
      const who = oneLine(sandboxId || (warmPool ? `warm pool, ${image}` : image));
      const seconds = since ? Math.max(0, Math.round((Date.now() - timestampMs(since)) / 1000)) : 0;
      const why = `${formatWord(WaitReason[reason])}${message === "" ? "" : `: ${oneLine(message)}`}`;
      return ["waiting", `${who}, ${seconds} s, ${why}`];
    });
  return [["waiting to start", String(waitingSandboxes)], ...lines];
}

function oneLine(text: string): string {
  const line = visible(text.replace(/\s+/g, " "));
  return line.length > MAX_MESSAGE ? `${line.slice(0, MAX_MESSAGE)}…` : line;
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
