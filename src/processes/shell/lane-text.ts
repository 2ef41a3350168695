import type { JobRequest } from "./job.ts";
import { divideEnv, execArguments } from "./shell-env.ts";
import { AWAIT_READER, quote, type ShellText } from "./shell-text.ts";

/**
 * What a lane is told to run a job: note what is there before, run it, tell the
 * end and whether anything is left.
 */
export function jobText(request: JobRequest): (nonce: string) => ShellText {
  const child = childText(request, "</dev/null");
  return (nonce) => `n=${nonce};trap '${AWAIT_READER}' 0;B\n${child}`;
}

/**
 * Runs a command as a child and reports to both streams with the nonce in $n:
 * `R<pid>` on stdout when it begins, then `E` by what the shell calls so, or
 * `D` where the directory cannot be entered. `R` comes from the child: this
 * shell itself traps signals, and one sent before there is a child would be lost.
 *
 * The pipes are opened anew through /proc: a job that sets O_NONBLOCK on its
 * own would otherwise cut what follows it. They are opened for reading too:
 * whoever writes when nobody else reads waits, and is not ended. A shell line is an argument of its
 * own shell, so its syntax errors stay there.
 */
export function childText(request: JobRequest, stdin: string): ShellText {
  const { plain, special } = divideEnv(request.env);
  const exports = Object.entries(plain).map(([name, value]) => `export ${name}=${quote(value)};`);
  const exec = execArguments(request.argv, special).map(quote).join(" ");
  return (
    `if cd -P -- ${quote(request.workingDir)};then ` +
    `(printf %s "\${n}R$$;";unset PWD OLDPWD SHLVL n;${exports.join("")}exec ${exec}) ` +
    `${stdin} 1<>/proc/self/fd/3 2<>/proc/self/fd/4 3>&- 4>&- 5<&-\n` +
    `s=$?;E;else W "\${n}D;";fi\n`
  );
}
