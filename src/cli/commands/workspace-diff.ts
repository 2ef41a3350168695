import type { Command } from "commander";
import {
  type WorkspaceChange,
  WorkspaceChangeSchema,
  WorkspaceChangeType,
  WorkspaceDifference,
  type WorkspaceDiffSummary,
  WorkspaceDiffSummarySchema,
} from "../../../gen/ts/berth/v1/workspace_pb.js";
import { examples } from "../examples.ts";
import { EXIT, Failed } from "../exit.ts";
import { formatSize, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { visible } from "../visible.ts";

/** The exit code of `--exit-code` if there are differences, as with `diff`. */
const DIFFER = 1;

interface DiffFlags extends ClientFlags {
  readonly summary?: boolean;
  readonly exitCode?: boolean;
}

/** `berth workspace diff`: prints a line for each entry that differs. */
export function diffCommand(host: CommandHost): Command {
  return clientCommand("diff")
    .argument("<base>", "id of the workspace to compare with")
    .argument("<workspace>", "id of the workspace to show the changes of")
    .summary("show how a workspace differs from another one")
    .description(
      "Prints a line for each entry of a workspace that differs from another one, its base: added (A), deleted (D) or modified (M).",
    )
    .option("--summary", "print only the totals")
    .option("--exit-code", `exit with ${DIFFER} if they differ, and with ${EXIT.noCommand} if the call fails`)
    .addHelpText(
      "after",
      `\nWith --json each change is one line, and the summary is the last.\n${examples(
        "berth workspace diff job job-2",
        "berth workspace diff --exit-code --summary job job-2",
      )}`,
    )
    .action(
      host.action(async (baseWorkspaceId: string, workspaceId: string, flags: DiffFlags) => {
        const { stdout } = host.io;
        const { signal } = host.interrupts;
        const failed = flags.exitCode ? EXIT.noCommand : EXIT.failed;
        return withClient(host, flags, failed, async (client) => {
          let summary: WorkspaceDiffSummary | undefined;
          const request = { baseWorkspaceId, workspaceId };
          for await (const { item } of client.workspaces.diffWorkspace(request, { signal })) {
            if (item.case === "summary") summary = item.value;
            if (item.case !== "changes" || flags.summary) continue;
            const { changes } = item.value;
            if (!flags.json) await write(stdout, changes.map(line).join(""), signal);
            else
              for (const change of changes)
                await writeJson(stdout, messageJson(WorkspaceChangeSchema, change), signal);
          }
          if (summary === undefined) throw new Failed("the answer has no end", { exitCode: failed });
          if (flags.json)
            await writeJson(stdout, { summary: messageJson(WorkspaceDiffSummarySchema, summary) }, signal);
          else if (flags.summary) await write(stdout, totals(summary), signal);
          const { addedCount, removedCount, modifiedCount } = summary;
          const differ = addedCount + removedCount + modifiedCount > 0n;
          return flags.exitCode && differ ? DIFFER : EXIT.ok;
        });
      }),
    );
}

const LETTERS: Partial<Record<WorkspaceChangeType, string>> = {
  [WorkspaceChangeType.ADDED]: "A",
  [WorkspaceChangeType.REMOVED]: "D",
  [WorkspaceChangeType.MODIFIED]: "M",
};

/** For example `M dir/file (content, mode)`. */
function line({ type, path, differences }: WorkspaceChange): string {
  const words = differences.map((each) => formatWord(WorkspaceDifference[each]).replaceAll("-", " "));
  return `${LETTERS[type] ?? "?"} ${visible(path)}${words.length > 0 ? ` (${words.join(", ")})` : ""}\n`;
}

function totals(summary: WorkspaceDiffSummary): string {
  const rows = [
    ["added", summary.addedCount, summary.addedBytes],
    ["removed", summary.removedCount, summary.removedBytes],
    ["modified", summary.modifiedCount, summary.modifiedBytes],
  ] as const;
  return `${rows.map(([word, count, bytes]) => `${count} ${word} (${formatSize(Number(bytes))})`).join(", ")}\n`;
}
