/**
 * Whom sandboxes belong to on the host. They have one user of their own inside,
 * whom a user namespace maps to this one outside.
 */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** What a command is prefixed with to run as this user, unable to gain rights. */
  readonly become: readonly string[];
}

/**
 * The host's user behind the sandboxes of a root service. Debian leaves the
 * number to nobody, and systemd does not give it out.
 */
const UNPRIVILEGED_ID = 65_530;

/** The sandboxes' one user, as they see it. */
export const SANDBOX_USER = { name: "user", uid: 1000, gid: 1000, home: "/home/user" } as const;

/** Root steps down before anything of a sandbox runs: as host root, even a mapped one, it could read what root can. */
export function sandboxIdentity(): Identity {
  const common = ["setpriv", "--no-new-privs"];
  if (process.getuid?.() !== 0) {
    return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, become: [...common, "--"] };
  }
  const id = UNPRIVILEGED_ID;
  const drop = [`--reuid=${id}`, `--regid=${id}`, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
  return { uid: id, gid: id, become: [...common, ...drop, "--"] };
}

/** Whether a name or `uid[:gid]` means the sandboxes' one user; so does an empty one. */
export function isSandboxUser(user: string): boolean {
  const [name, group, ...rest] = user.split(":");
  const { name: own, uid, gid } = SANDBOX_USER;
  const userFits = name === own || name === String(uid);
  const groupFits = group === undefined || group === own || group === String(gid);
  return user === "" || (userFits && groupFits && rest.length === 0);
}
