/** What the setup tells on its output, each on a line of its own. */
export const SETUP_MARKERS = { ready: "berth-ready", badWorkingDir: "berth-bad-working-dir" } as const;

/** Where programs are looked for, unless a spec's environment says otherwise. */
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The main process of every sandbox: makes the working dir, says that it is
 * ready, lets go of its output and then blocks in a read. The read also ends
 * with the service, whose end of the pipe it is.
 */
const SCRIPT = `PATH=${DEFAULT_PATH}
unset IFS
umask 022
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
fail() { printf 'berth-%s\\n' "$1"; exit 1; }
[ -d "$1" ] || mkdir -p -- "$1" || fail bad-working-dir
printf 'berth-%s\\n' ready
exec >/dev/null 2>&1
read -r x
`;

/** The whole argument list of a sandbox's main process. The value goes as an argument, so nothing needs quoting. */
export function setupCommand(workingDir: string): string[] {
  return ["/bin/sh", "-c", SCRIPT, "berth", workingDir];
}
