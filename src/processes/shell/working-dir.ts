import { posix } from "node:path";
import { invalidArgument } from "../../base/errors.ts";

/**
 * Where a command starts: the sandbox's directory, an absolute path, or one
 * below the sandbox's directory.
 * @throws `INVALID_ARGUMENT` for a relative path that leaves it, and for /proc,
 *   through which a path can name what is not the sandbox's own.
 */
export function resolveWorkingDir(sandboxDir: string, asked: string | undefined): string {
  if (asked === undefined) return sandboxDir;
  const path = posix.resolve(sandboxDir, asked);
  if (
    !asked.startsWith("/") &&
    path !== sandboxDir &&
    !path.startsWith(`${sandboxDir === "/" ? "" : sandboxDir}/`)
  ) {
    throw invalidArgument(
      "working_dir",
      `${JSON.stringify(asked)} leaves the sandbox's directory. Give an absolute path instead.`,
    );
  }
  if (path === "/proc" || path.startsWith("/proc/")) {
    throw invalidArgument("working_dir", "a path below /proc is no place to start in.");
  }
  return path;
}
