import { TELL_ID_RANGES } from "./container-users.ts";

/** What the setup tells on its output, each on a line of its own. */
export const SETUP_MARKERS = {
  ready: "berth-ready",
  unknownUser: "berth-unknown-user",
  badWorkingDir: "berth-bad-working-dir",
  /** Followed by the user's numbers as `uid[:[gid]]`; nothing: root. */
  owner: "berth-owner ",
} as const;

/**
 * The main process of every sandbox, as root: makes the working dir, gives it
 * and the mounts that are to be given to the user, says that it is ready and
 * then blocks in a read, which SIGTERM ends at once and which costs no further
 * process.
 *
 * Names of users are looked up in the container's own files, as Docker does.
 * Markers are put together by printf, so that no error message that quotes the
 * script can be taken for one.
 */
const SCRIPT = `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset IFS
dir=$1 user=$2; shift 2
fail() { printf 'berth-%s\\n' "$1"; exit 1; }
lookup() {
  [ -r "$1" ] || return 1
  while IFS=: read -r name x id group x || [ -n "$name" ]; do
    [ "$name" != "$2" ] || return 0
  done <"$1"
  return 1
}
owner=
case $user in
  ''|0|root|0:*|root:*) ;;
  *)
    owner=\${user%%:*}
    case $owner in *[!0-9]*) lookup /etc/passwd "$owner" || fail unknown-user; owner=$id:$group ;; esac
    case $user in *:*)
      group=\${user#*:}
      case $group in *[!0-9]*) lookup /etc/group "$group" || fail unknown-user; group=$id ;; esac
      owner=\${owner%%:*}:$group ;;
    esac ;;
esac
if [ ! -d "$dir" ]; then
  mkdir -p -- "$dir" || fail bad-working-dir
  [ -z "$owner" ] || chown -- "$owner" "$dir" || fail bad-working-dir
fi
for mount do
  [ -z "$owner" ] || chown -- "$owner" "$mount" || exit 1
done
${TELL_ID_RANGES}
printf 'berth-owner %s\\n' "$owner"
printf 'berth-%s\\n' ready
read -r x
`;

/** The whole argument list of a sandbox's main process. Values go as arguments, so nothing needs quoting. */
export function setupCommand(options: {
  readonly workingDir: string;
  /** Name or `uid[:gid]`; empty: root. */
  readonly user: string;
  /** Mount targets that are given to the user. */
  readonly giveToUser: readonly string[];
}): string[] {
  return ["/bin/sh", "-c", SCRIPT, "berth", options.workingDir, options.user, ...options.giveToUser];
}
