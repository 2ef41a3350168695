import { closeSync, constants, openSync, readlinkSync } from "node:fs";
import { chown } from "node:fs/promises";
import path from "node:path";
import { BerthError } from "../../base/errors.ts";
import { checkMounts, O_PATH } from "../mounts.ts";
import type { EngineMount } from "../port.ts";
import { noRoom } from "./errors.ts";
import type { Identity } from "./sandbox-user.ts";

/** An open directory of the host, to mount in a sandbox. Its owner must close it. */
export interface OpenMount {
  readonly fd: number;
  /** Its resolved path. */
  readonly hostPath: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/**
 * Checks mounts and opens their directories. From then on the directories are those that were checked, even if
 * something else takes their paths (docs/engines/docker.md).
 * @throws `NOT_ALLOWED`, `TOO_MANY_OPERATIONS`.
 */
export async function openMounts(
  mounts: readonly EngineMount[],
  { allowed, hidden }: { readonly allowed: readonly string[]; readonly hidden: readonly string[] },
  identity: Identity,
): Promise<OpenMount[]> {
  const opened: OpenMount[] = [];
  try {
    for (const { hostPath, target, readOnly, giveToUser } of await checkMounts(mounts, allowed, hidden)) {
      const fd = openSync(hostPath, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
      opened.push({ fd, hostPath, target, readOnly });
      const opener = `/proc/self/fd/${fd}`;
      if (readlinkSync(opener) !== hostPath) throw new Error("it leads elsewhere now");
      if (giveToUser) await chown(opener, identity.uid, identity.gid);
    }
    return opened;
  } catch (error) {
    for (const { fd } of opened) closeSync(fd);
    if (error instanceof BerthError) throw error;
    const refused = new BerthError(
      "NOT_ALLOWED",
      "A host path could not be mounted: it changed while it was being mounted, or may not be given to the sandbox's user.",
      { cause: error },
    );
    throw noRoom(error) ?? refused;
  }
}

/**
 * bwrap resolves mounts by path as an unprivileged user, who may be unable to reach them. So root binds them to a
 * reachable path, in a mount namespace that only bwrap and its sandbox see, and checks that they are the directories
 * that the service has open. The descriptors themselves are not inherited, because a process could use them to leave
 * the directories.
 */
const STAGE = `stage=$1 service=$2 n=$3 i=0
shift 3
mount -n -c -t tmpfs -o mode=755,nosuid,nodev,size=64k tmpfs "$stage" || exit 125
while [ $i -lt $n ]; do
  mkdir "$stage/$i" && mount -n -c -o bind,nosuid,nodev -- "$2" "$stage/$i" || exit 125
  [ "$stage/$i" -ef "/proc/$service/fd/$1" ] || { echo 'a host path leads elsewhere now' >&2; exit 125; }
  shift 2
  i=$((i+1))
done
exec "$@"`;

/** Where a mount is staged. */
export function stagedPath(stage: string, index: number): string {
  return path.join(stage, String(index));
}

/** Prefixes a command that runs bwrap, as root, with the staging of mounts. */
export function withStagedMounts(
  stage: string,
  mounts: readonly OpenMount[],
  [program, args]: readonly [string, readonly string[]],
): [string, string[]] {
  const paths = mounts.flatMap(({ fd, hostPath }) => [String(fd), hostPath]);
  const numbers = [process.pid, mounts.length].map(String);
  const staging = ["/bin/sh", "-c", STAGE, "berth", stage, ...numbers];
  return ["unshare", ["--mount", "--propagation=slave", "--", ...staging, ...paths, program, ...args]];
}
