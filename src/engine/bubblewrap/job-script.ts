import { invalidArgument } from "../../base/errors.ts";
import { quote } from "../../base/shell-quote.ts";
import type { TerminalSize } from "../port.ts";
import { DEFAULT_PATH } from "./sandbox-user.ts";
import { joinText, pipesText, REPORTS_FD, reopenText, reportStartText } from "./shell-pipes.ts";

/**
 * Descriptors of a process's attendant. In the sandbox, the standard streams have their usual numbers, and `report` is
 * a copy of stdout. Only the standard streams reach the program.
 */
export const JOB_FDS = { report: 3, script: 4, stdin: 5, stdout: 6, stderr: 7 } as const;

/** Starts a process: a shell in the sandbox, in its own session, that reads its script. */
const JOB_COMMAND = ["/bin/sh", `/proc/self/fd/${JOB_FDS.script}`];

/** The shell's reports before it executes the program. */
export const JOB_REPORT = { started: "r", failed: "x", noTerminal: "t" } as const;

/**
 * The outputs are also opened for reading, so that a writer blocks once the service has dropped them, instead of dying
 * of SIGPIPE.
 */
const OWN_OUTPUTS = `exec ${JOB_FDS.report}>&- 1<>/proc/self/fd/1 2<>/proc/self/fd/2`;

/** A process to start in the sandbox. */
export interface Job {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly terminal: TerminalSize | undefined;
  /** Limits that each process sets for itself, if no control group limits the sandbox. */
  readonly limits: { readonly pids: number | undefined; readonly memoryBytes: number | undefined };
}

/**
 * Looks up the program like `execvp`, reports whether it can run, and executes it. The environment and the arguments
 * are in this text so that no process list on the host shows them.
 */
export function jobScript({ argv, env, terminal, limits }: Job): string {
  const [program = ""] = argv;
  const assignments = Object.entries(env).map(([name, value]) => quote(`${name}=${value}`));
  // env would take a program name that contains "=" for an assignment.
  const command = program.includes("=") ? ["/bin/sh", "-c", quote('exec "$@"'), "sh", '"$@"'] : ['"$@"'];
  const set = `set -- ${argv.map(quote).join(" ")}`;
  const run = ["exec env -i --", ...assignments, ...command].join(" ");
  return `exec 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
PATH=${DEFAULT_PATH}
unset IFS
umask 022
cd /
${limitsText(limits)}
${set}
c=127
try() { if [ -f "$1" ] && [ -x "$1" ]; then c=0; elif [ -e "$1" ]; then c=126; fi; }
case $1 in
*/*) try "$1" ;;
*) p=${quote(env.PATH ?? DEFAULT_PATH)}:
  while [ "$1" ] && [ "$p" ] && [ $c != 0 ]; do d=\${p%%:*} p=\${p#*:}; try "\${d:-.}/$1"; done ;;
esac
[ $c = 0 ] || { printf '${JOB_REPORT.failed}%s;' $c >&${JOB_FDS.report}; exit $c; }
${terminal ? terminalText(terminal, set, run) : `printf '${JOB_REPORT.started};' >&${JOB_FDS.report} || exit\n${OWN_OUTPUTS}\n${run}`}
`;
}

/**
 * The user namespace counts its own processes, so the limit of processes is for the sandbox. The memory limit is for
 * each process.
 */
function limitsText({ pids, memoryBytes }: Job["limits"]): string {
  const lines = [
    ...(pids === undefined ? [] : [`ulimit -u ${pids} 2>/dev/null || ulimit -p ${pids}`]),
    ...(memoryBytes === undefined ? [] : [`ulimit -d ${Math.ceil(memoryBytes / 1024)}`]),
  ];
  return lines.join("\n");
}

/** The kernel's limit for one argument. */
const MAX_TERMINAL_TEXT = 131_071;

/**
 * `script` creates the terminal and runs the text in it.
 * @throws `INVALID_ARGUMENT` if the text is too long for one argument of a program
 */
function terminalText({ columns, rows }: TerminalSize, set: string, run: string): string {
  const inner = `stty cols ${columns} rows ${rows}
printf '${JOB_REPORT.started}%s;' "$(tty)" >&${JOB_FDS.report} || exit
exec ${JOB_FDS.report}>&-
${set}
${run}`;
  if (Buffer.byteLength(inner) > MAX_TERMINAL_TEXT) {
    throw invalidArgument(
      "terminal",
      "on bubblewrap, a command with a terminal and its environment have at most 128 KiB together. Pass more through a file.",
    );
  }
  return `command -v script >/dev/null || { printf '${JOB_REPORT.noTerminal};' >&${JOB_FDS.report}; exit 1; }
SHELL=/bin/sh exec script -q -e -f -E always -c ${quote(inner)} /dev/null`;
}

/** What an attendant reports if it has no child: a shell that cannot fork ends at once, as once the sandbox has ended. */
const NO_CHILD = 125;

/** Enters a sandbox's outer user namespace; {@link entryArguments} completes the command. */
export const ENTRY_COMMAND = ["nsenter", "--preserve-credentials", "--no-fork"];
export const ENTRY_WIDTH = 6;

/** What an attendant needs to enter a sandbox. */
interface Entry {
  readonly tag: number;
  /** File of the outer user namespace. */
  readonly userNamespace: string;
  /** The host's pid of process 1. */
  readonly initPid: number;
  readonly joinFiles: readonly string[];
  /** Path of the executable that enters with a filter; undefined if there is no filter. */
  readonly entryFile: string | undefined;
  readonly stdin: boolean;
  readonly terminal: boolean;
}

/**
 * Completes {@link ENTRY_COMMAND}. The command is the attendant of a process: a shell on the host with a child in the
 * sandbox's pid namespace. The child joins the control groups, enters all other namespaces and the inner user
 * namespace, and loads the filter of system calls. It loses every capability when it executes a program as a user that
 * is not root there. The attendant, outside the sandbox and its control groups, waits for the child and reports its
 * exit code.
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

function attendantScript({ tag, initPid, joinFiles, entryFile, stdin, terminal }: Entry): string {
  const { script, stdin: input, stdout, stderr } = JOB_FDS;
  const enter = entryFile === undefined ? enterUnfiltered(initPid) : [entryFile];
  const child = [
    stdin ? `<&${input}` : "</dev/null",
    ...[`>&${stdout}`, terminal ? `2>&${stdout}` : `2>&${stderr}`, `${REPORTS_FD}>&1`],
    ...[input, stdout, stderr].map((fd) => `${fd}>&-`),
  ];
  // The shell inside waits for its script as long as any process has the pipe open for writing.
  const own = reopenText({ [script]: "<>", [stdout]: ">", [stderr]: ">" });
  return `${pipesText([script, input, stdout, stderr])}exec ${own} 2>/dev/null
${reportStartText(tag)}c=${NO_CHILD}
trap 'printf "e ${tag} %s\\n" $c >&${REPORTS_FD}' 0
(${joinText(joinFiles)}exec ${[...enter, ...JOB_COMMAND].map(quote).join(" ")}) ${child.join(" ")}
c=$?
exit 0
`;
}

function enterUnfiltered(initPid: number): string[] {
  const namespaces = ["user", "mount", "net", "ipc", "uts", "cgroup"].map((name) => `--${name}`);
  return ["nsenter", "--preserve-credentials", "--target", String(initPid), ...namespaces, "--", "setsid"];
}
