import { quote } from "../../base/shell-quote.ts";
import { JOB_COMMAND, JOB_FDS } from "./job-script.ts";
import { joinText } from "./keeper-script.ts";
import { pipesText, REPORTS_FD, reopenText, reportStartText } from "./shell-pipes.ts";

/** What enters a sandbox's outer user namespace, before {@link entryArguments}. */
export const ENTRY_COMMAND = ["nsenter", "--preserve-credentials", "--no-fork"];
export const ENTRY_WIDTH = 6;

/** How an attendant gets into a sandbox. */
export interface Entry {
  readonly tag: number;
  /** File of the outer user namespace. */
  readonly userNamespace: string;
  /** The host's number of process 1. */
  readonly initPid: number;
  readonly joinFiles: readonly string[];
  readonly stdin: boolean;
  readonly terminal: boolean;
}

/**
 * Completes {@link ENTRY_COMMAND}: what it becomes is the attendant of a
 * process, a shell of the host's whose child is the first of its own in the
 * sandbox's pid namespace. That child joins the control groups, enters all
 * other namespaces and the inner user namespace, and loses every right on the
 * way in, by becoming a program as a user that is not root there. The
 * attendant waits for it, outside and not in the control groups, and reports
 * its exit code.
 */
export function entryArguments(entry: Entry): string[] {
  const { userNamespace, initPid } = entry;
  return [
    `--user=${userNamespace}`,
    `--pid=/proc/${initPid}/ns/pid`,
    "--",
    "/bin/sh",
    "-c",
    attendantScript(entry),
  ];
}

function attendantScript({ tag, initPid, joinFiles, stdin, terminal }: Entry): string {
  const { script, stdin: input, stdout, stderr } = JOB_FDS;
  const namespaces = ["user", "mount", "net", "ipc", "uts", "cgroup"].map((name) => `--${name}`);
  const enter = ["nsenter", "--preserve-credentials", "--target", String(initPid), ...namespaces];
  const child = [
    stdin ? `<&${input}` : "</dev/null",
    ...[`>&${stdout}`, terminal ? `2>&${stdout}` : `2>&${stderr}`, `${REPORTS_FD}>&1`],
    ...[input, stdout, stderr].map((fd) => `${fd}>&-`),
  ];
  // The shell inside waits for its script for as long as somebody could still write it.
  const own = reopenText({ [script]: "<>", [stdout]: ">", [stderr]: ">" });
  return `${pipesText([script, input, stdout, stderr])}exec ${own} 2>/dev/null
${reportStartText(tag)}(${joinText(joinFiles)}exec ${[...enter, "--", ...JOB_COMMAND].map(quote).join(" ")}) ${child.join(" ")}
printf 'e ${tag} %s\\n' $? >&${REPORTS_FD}
exit 0
`;
}
