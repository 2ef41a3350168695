import type { JobRequest } from "./job.ts";
import { divideEnv, execArguments } from "./shell-env.ts";
import { quote, type ShellText } from "./shell-text.ts";

/**
 * What a lane is told to run a job. The pipes are opened anew through /proc: a
 * job that sets O_NONBLOCK on its own would otherwise cut the output of the
 * next. A shell line is an argument of its own shell, so its syntax errors stay
 * there.
 */
export function jobText(request: JobRequest): (nonce: string) => ShellText {
  const { plain, special } = divideEnv(request.env);
  const exports = Object.entries(plain).map(([name, value]) => `export ${name}=${quote(value)};`);
  const exec = execArguments(request.argv, special).map(quote).join(" ");
  return (nonce) =>
    `n=${nonce};B;if cd -P -- ${quote(request.workingDir)};then printf %s \${n}R\\; >&3;` +
    `(unset PWD OLDPWD SHLVL n;${exports.join("")}exec ${exec}) </dev/null >/proc/self/fd/3 2>/proc/self/fd/4 3>&- 4>&-\n` +
    `s=$?;E;else W "\${n}D;";fi\n`;
}
