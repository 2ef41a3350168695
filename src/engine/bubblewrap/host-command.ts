import type { Identity } from "./identity.ts";

/**
 * The whole environment of programs that run on the host. A sandbox's own
 * never is part of it: its LD_PRELOAD would run outside.
 */
export const HOST_ENV: Readonly<Record<string, string>> = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" };

/** How many open files a process in a sandbox may have: plenty, and cheap for programs that close them all. */
const OPEN_FILES = 16_384;

/** Takes limits on, joins control groups, and becomes the command. A lower hard limit of open files stays. */
const JOIN = `umask 022
ulimit -c 0
ulimit -n $1 2>/dev/null
n=$2
shift 2
while [ $n -gt 0 ]; do echo 0 >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@"`;

/** Puts together what runs a command as a sandbox's user, in a sandbox's control groups. */
export function hostCommand(
  identity: Identity,
  joinFiles: readonly string[],
  command: readonly string[],
): [string, string[]] {
  const args = [String(OPEN_FILES), String(joinFiles.length), ...joinFiles, ...identity.become, ...command];
  return ["/bin/sh", ["-c", JOIN, "berth", ...args]];
}
