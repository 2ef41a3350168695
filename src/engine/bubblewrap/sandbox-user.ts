/**
 * The host's user behind all sandboxes. A user namespace maps the sandboxes' one
 * user to it.
 */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** The prefix of a command that runs as this user, unable to gain rights. */
  readonly become: readonly string[];
}

/**
 * The host's user behind the sandboxes of a root service. Debian reserves the
 * number, and systemd does not allocate it.
 */
const UNPRIVILEGED_ID = 65_530;

/** The sandboxes' one user, as they see it. */
export const SANDBOX_USER = { name: "user", uid: 1000, gid: 1000, home: "/home/user" } as const;

/** PATH in sandboxes, unless the spec's environment has one. */
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** A root service drops root before anything of a sandbox runs: as host root, even a mapped one, it could read what root can. */
export function sandboxIdentity(): Identity {
  const common = ["setpriv", "--no-new-privs"];
  if (process.getuid?.() !== 0) {
    return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, become: [...common, "--"] };
  }
  const id = UNPRIVILEGED_ID;
  const drop = [`--reuid=${id}`, `--regid=${id}`, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
  return { uid: id, gid: id, become: [...common, ...drop, "--"] };
}

/** Whether a name or `uid[:gid]` means the sandboxes' one user; an empty one does. */
export function isSandboxUser(user: string): boolean {
  const [name, group, ...rest] = user.split(":");
  const { name: own, uid, gid } = SANDBOX_USER;
  const userFits = name === own || name === String(uid);
  const groupFits = group === undefined || group === own || group === String(gid);
  return user === "" || (userFits && groupFits && rest.length === 0);
}

/**
 * The whole environment of programs that run on the host. A sandbox's own is never
 * part of it: its LD_PRELOAD would run outside.
 */
export const HOST_ENV: Readonly<Record<string, string>> = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" };

/** Open files per process in a sandbox: plenty, and cheap for programs that close them all. */
const OPEN_FILES = 16_384;

/** Sets limits, joins control groups, and becomes the command. A lower hard limit of open files stays. */
const JOIN = `umask 022
ulimit -c 0
ulimit -n $1 2>/dev/null
n=$2
shift 2
while [ $n -gt 0 ]; do echo 0 >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@"`;

/** The program and arguments that run a command as the sandboxes' host user, in control groups. */
export function hostCommand(
  identity: Identity,
  joinFiles: readonly string[],
  command: readonly string[],
): [string, string[]] {
  const args = [String(OPEN_FILES), String(joinFiles.length), ...joinFiles, ...identity.become, ...command];
  return ["/bin/sh", ["-c", JOIN, "berth", ...args]];
}
