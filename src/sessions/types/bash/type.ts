import { z } from "zod";
import { newNonce } from "../../../base/markers.ts";
import {
  defineTool,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { secondsToMs, timeoutParam, withoutNul } from "../common.ts";
import { InterpreterBackend, interpreterConfig, startInterpreter } from "../interpreter.ts";
import type { InterpreterHost, InterpreterLanguage } from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";

const runParams = z.strictObject({
  command: z.string().describe("The command: one or more lines."),
  timeout: timeoutParam,
});

const run = defineTool({
  name: "run",
  description:
    "Runs a command in the session's bash. Directory, variables, functions and background jobs stay for the next call. " +
    "Returns stdout, stderr, exit_code, cwd, timed_out, truncated, session_lost (the command ended the shell) and " +
    "session_restarted (the shell was lost before this call, and restarted). stdin is empty. Processes that a command " +
    "leaves running continue, and their later output is dropped. If more than 16 of them hold the session's output, that " +
    "of the newest is closed, and it gets SIGPIPE when it writes: redirect the output of servers to a file.",
  params: runParams,
  isCommand: true,
  timeoutMs: ({ timeout }) => secondsToMs(timeout),
  run: (bash: Bash, { command }, call) => bash.run(withoutNul("params.command", command), call),
});

/** The type `bash`: a persistent shell. */
export function bashType(host: InterpreterHost): SessionType {
  return {
    name: "bash",
    description: "A bash that stays: its directory, variables, functions and background jobs.",
    config: interpreterConfig,
    tools: [run],
    sandbox: {},
    takesSecrets: true,
    initialize: async (place, given, signal) => {
      const config = given as z.output<typeof interpreterConfig>;
      return new Bash(await startInterpreter(host, BASH, place, config, {}, signal));
    },
  };
}

class Bash extends InterpreterBackend {
  #cwd = "";

  async run(command: string, call: ToolCall): Promise<ToolResult> {
    const { outcome, data, attachments } = await this.execute(command, call);
    const timedOut = outcome.interrupted;
    if (outcome.kind === "done") this.#cwd = reportOf(outcome.end.payload).cwd ?? this.#cwd;
    const exitCode = outcome.kind === "gone" ? outcome.exitCode : exitCodeOf(outcome.end.status, timedOut);
    return succeeded(
      {
        ...data,
        exit_code: exitCode,
        cwd: await this.redacted(this.#cwd),
        timed_out: timedOut,
        session_lost: outcome.kind === "gone",
        session_restarted: call.restarted,
      },
      {
        ...(timedOut && {
          code: TOOL_CODE.timeout,
          message: `The command exceeded its timeout, and was ${outcome.kind === "gone" ? "killed with its shell" : "interrupted"}.`,
        }),
        attachments,
        programFailed: exitCode !== 0,
      },
    );
  }
}

/** An interrupted command without a status gets the status that shells use for SIGINT. */
function exitCodeOf(status: string, interrupted: boolean): number {
  return status === "" && interrupted ? 130 : Number(status);
}

/** The descriptors of bash's own pipes, above those that scripts usually use. */
const OUT = 211;
const ERR = 212;
/** The descriptor from which it reads a command. */
const IN = 213;

/**
 * An interactive bash survives an interrupted command, `set -u` and expansion errors, which would end a script. Without
 * a terminal and with empty prompts it prints nothing of its own.
 */
const ARGV = ["bash", "--norc", "--noprofile", "--noediting", "+H", "+m", "-i", "-s"];

const BOOT = `exec ${OUT}>&1 ${ERR}>&2 >/dev/null 2>&1
PS1= PS2=
unset MAILCHECK HISTFILE
set +o history
history -c
shopt -u promptvars
`;

/**
 * The protocol with bash. It reads commands from its stdin, which the commands themselves do not get. Each command
 * comes in a here-document and is sourced, so that nothing in it, such as an open quote, affects what follows. Unlike a
 * shell function, `.` runs it with the shell's own arguments and variables, and without the notices of an interactive
 * shell. The here-document comes after stderr, so that the command's stderr says it if there is no disk space for it.
 *
 * Each line of an end is printed by a command with its own redirection, so that the output of a DEBUG trap stays
 * out. `\\builtin` is no alias, whatever a command defines. A shell that cannot run these commands any more, or may not
 * redirect their output (`set -r`), ends itself: otherwise each call would last until its timeout.
 */
const BASH: InterpreterLanguage = {
  argv: ARGV,
  boot: BOOT,
  pipes: { stdout: `/proc/self/fd/${OUT}`, stderr: `/proc/self/fd/${ERR}` },
  // The current directory, and the pids of as many processes as a sandbox may have.
  maxPayloadBytes: 512 * 1024,

  run(code, nonce, channel) {
    const delimiter = newNonce();
    return (
      `\\builtin enable . || \\exit\n` +
      `\\builtin . /proc/self/fd/${IN} </dev/null >${channel.stdout} 2>${channel.stderr} ${OUT}>&- ${ERR}>&- ${IN}<<'${delimiter}'\n` +
      `${code}\n${delimiter}\n${end(nonce, "E$?", channel)}`
    );
  },

  printEnd: end,

  pidsOf(payload) {
    const [own = 0, ...seen] = reportOf(payload).pids;
    return { own, seen };
  },
};

/** What an end reports: the current directory, and bash's pid and all pids. All that is missing was lost or is damaged. */
function reportOf(payload: Buffer): { readonly cwd: string | undefined; readonly pids: readonly number[] } {
  const at = payload.lastIndexOf("//");
  if (at < 0) return { cwd: undefined, pids: [] };
  const pids = payload.toString("latin1", at + 2);
  return {
    cwd: at > 0 ? payload.toString("utf8", 0, at) : undefined,
    pids: PIDS.test(pids) ? pids.split("/proc/").map(Number) : [],
  };
}

const PIDS = /^\d+(\/proc\/\d+)+$/;

/**
 * Prints `E<status>`, the current directory, `//`, bash's pid and those of all processes, and `P`. PWD is the directory
 * unless a command has changed it. On stderr the end comes last, so that it follows all output of processes that no
 * longer appear among the pids.
 */
function end(nonce: string, tag: string, { stdout, stderr }: OutputChannel): string {
  const out = `>${stdout}`;
  const cwd = (text: string): string => `\\builtin printf '%sD;%s%sG;' ${nonce} "${text}" ${nonce} ${out}`;
  // $_ is the tag: the shell ends with the status of the code.
  return `\\builtin printf '%s%s;' ${nonce} "${tag}" ${out} || \\exit "\${_#?}"
\\builtin test . -ef "\${PWD-}" && ${cwd("$PWD")} || ${cwd("$(\\builtin pwd)")}
\\builtin printf %s '${nonce}D;//' "$$" /proc/[0-9]* '${nonce}G;${nonce}P;' ${out}
\\builtin printf '%s%s;' ${nonce} "${tag}" >${stderr}
\\builtin :
`;
}
