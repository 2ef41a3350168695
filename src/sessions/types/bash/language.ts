import { newNonce } from "../../../processes/shell/markers.ts";
import type { InterpreterLanguage } from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";

/** Where bash keeps its pipes: beyond what scripts use by number. */
const OUT = 211;
const ERR = 212;
/** Where it reads a command. */
const IN = 213;

/**
 * An interactive bash survives an interrupted command, `set -u` and errors of
 * expansion, which end a script; without a terminal and with no prompts of its
 * own it says nothing by itself.
 */
const ARGV = ["bash", "--norc", "--noprofile", "--noediting", "+H", "+m", "-i", "-s"];

const BOOT = `exec ${OUT}>&1 ${ERR}>&2 >/dev/null 2>&1
PS1= PS2=
unset MAILCHECK HISTFILE
set +o history
shopt -u promptvars
`;

/**
 * How bash is spoken to. It reads commands from its stdin, which it keeps to
 * itself while it runs one. A command is read whole from a here-document and
 * sourced, so that nothing it holds, such as an open quote, reaches what
 * follows; and `.` runs it as no shell function would: with the shell's own
 * arguments and variables, and without the notices of an interactive shell.
 *
 * Each end is told by commands of their own, since a trap for DEBUG writes
 * where the command after it does not.
 */
export const BASH: InterpreterLanguage = {
  argv: ARGV,
  boot: BOOT,
  pipes: { stdout: `/proc/self/fd/${OUT}`, stderr: `/proc/self/fd/${ERR}` },

  run(code, nonce, channel) {
    const delimiter = newNonce();
    return (
      `builtin . /proc/self/fd/${IN} ${IN}<<'${delimiter}' </dev/null >${channel.stdout} 2>${channel.stderr} ${OUT}>&- ${ERR}>&-\n` +
      `${code}\n${delimiter}\n${end(nonce, "E$?", channel)}`
    );
  },

  tellEnd: end,

  pidsOf(payload) {
    const line = payload.toString("latin1").trimEnd();
    const pids = line.slice(line.lastIndexOf("\n") + 1).split(" ");
    const [own = 0, ...seen] = pids.map((pid) => Number(pid.slice(pid.lastIndexOf("/") + 1)));
    return { own, seen: seen.filter((pid) => pid > 0) };
  },
};

/** The directory, from what an end told. */
export function cwdOf(payload: Buffer): string {
  const text = payload.toString();
  return text.slice(0, text.lastIndexOf("\n", text.length - 2));
}

/**
 * `E<status>`, then the directory and a line of its pid and all pids, then `P`;
 * on stderr the end comes last, so that what those wrote before it who are not
 * among the pids any more is before it too.
 */
function end(nonce: string, tag: string, { stdout, stderr }: OutputChannel): string {
  const out = `>${stdout}`;
  return `builtin printf '%s%s;' ${nonce} "${tag}" ${out}
builtin pwd ${out}
builtin printf '%s ' $$ /proc/[0-9]* ${out}
builtin printf '\\n%sP;' ${nonce} ${out}
builtin printf '%s%s;' ${nonce} "${tag}" >${stderr}
builtin :
`;
}
