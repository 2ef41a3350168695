import { statSync } from "node:fs";
import path from "node:path";

/**
 * Where named pipes to containers are made. A container sees in `/proc/self/mountinfo` where a directory of the host's
 * lies in its file system, so for root that is a directory of `run`, where that is a file system of its own, as on
 * every host: it tells nothing of the data directory. Elsewhere it is below the data directory. It is the same for
 * every run of the service until the machine starts again, when no container has pipes any more.
 * @param run the directory for what is of use until the machine stops. Default `/run`.
 */
export function pipesDirectory(dataDir: string, instance: string, run = "/run"): string {
  const there = statSync(run, { throwIfNoEntry: false });
  const isOwn = there !== undefined && there.dev !== statSync(path.dirname(run)).dev;
  return process.getuid?.() === 0 && isOwn
    ? path.join(run, "berth/pipes", path.basename(instance))
    : path.join(dataDir, "pipes");
}
