import path from "node:path";
import type { OpenMount } from "./mounts.ts";

/**
 * bwrap looks mounts up by their paths, as the unprivileged user that it runs
 * as, and that user need not be able to reach them. So root binds them to where
 * everybody may go, in a mount namespace that only bwrap and its sandbox see,
 * and makes sure that they are what the service has open. Nothing inherits
 * those descriptors, for they lead out of the directories as well.
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

/** Where a mount is staged, below the directory for that. */
export function stagedPath(stage: string, index: number): string {
  return path.join(stage, String(index));
}

/** Puts the staging of mounts before a command of root's that ends in bwrap. */
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
