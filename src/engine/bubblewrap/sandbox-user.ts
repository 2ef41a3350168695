/** The host user behind all sandboxes. User namespaces map the sandboxes' one user to it. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** The prefix of a command that runs as this user, without a way to gain privileges. */
  readonly become: readonly string[];
}

/**
 * The host user behind the sandboxes of a service that runs as root. Debian reserves this number, and systemd does not
 * allocate it.
 */
const UNPRIVILEGED_ID = 65_530;

/** The only user of sandboxes, as seen inside. */
export const SANDBOX_USER = { name: "user", uid: 1000, gid: 1000, home: "/home/user" } as const;

/** PATH in sandboxes, unless the spec's environment has one. */
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * A service that runs as root drops root before it runs anything of a sandbox: as host root, even mapped, sandboxes
 * could read everything that root can.
 */
export function sandboxIdentity(): Identity {
  const common = ["setpriv", "--no-new-privs"];
  if (process.getuid?.() !== 0) {
    return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, become: [...common, "--"] };
  }
  const id = UNPRIVILEGED_ID;
  const drop = [`--reuid=${id}`, `--regid=${id}`, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
  return { uid: id, gid: id, become: [...common, ...drop, "--"] };
}

/** Whether a name or `uid[:gid]` means the sandboxes' one user. An empty one does. */
export function isSandboxUser(user: string): boolean {
  const [name, group, ...rest] = user.split(":");
  const { name: own, uid, gid } = SANDBOX_USER;
  const userFits = name === own || name === String(uid);
  const groupFits = group === undefined || group === own || group === String(gid);
  return user === "" || (userFits && groupFits && rest.length === 0);
}

/**
 * The complete environment of programs that run on the host. It never includes a sandbox's environment, whose
 * LD_PRELOAD would take effect outside.
 */
export const HOST_ENV: Readonly<Record<string, string>> = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" };

/**
 * Limit of open files per process in a sandbox: plenty, yet cheap for programs that close every possible descriptor.
 */
const OPEN_FILES = 16_384;

/** Sets limits, joins control groups, and executes the command. A hard limit of open files that is lower is kept. */
const JOIN = `umask 022
ulimit -c 0
ulimit -n $1 2>/dev/null
n=$2
shift 2
while [ $n -gt 0 ]; do echo 0 >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@"`;

/** The program and arguments to run a command as the sandboxes' host user, in control groups. */
export function hostCommand(
  identity: Identity,
  joinFiles: readonly string[],
  command: readonly string[],
): [string, string[]] {
  const args = [String(OPEN_FILES), String(joinFiles.length), ...joinFiles, ...identity.become, ...command];
  return ["/bin/sh", ["-c", JOIN, "berth", ...args]];
}
