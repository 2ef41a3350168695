import { BerthError } from "../../base/errors.ts";
import { codeOf, isNoSpace } from "../../base/system-errors.ts";

/** The error that clients get for a failed system call on the workspaces' disk. */
export function diskError(error: unknown): unknown {
  const code = codeOf(error);
  if (error instanceof BerthError || code === undefined) return error;
  if (isNoSpace(code)) {
    return new BerthError(
      "NO_SPACE",
      code === "EDQUOT"
        ? "The workspace's quota leaves no room for this. Delete files in it."
        : "The disk that holds the server's workspaces is full. Ask the operator to make room.",
      { cause: error },
    );
  }
  const problem =
    code === "EROFS"
      ? "is read-only"
      : code === "ENOENT" || code === "ENOTDIR"
        ? "is missing or is not a directory"
        : code === "EACCES" || code === "EPERM"
          ? "may not be written by the server"
          : undefined;
  if (problem === undefined) return error;
  return new BerthError(
    "WORKSPACE_BROKEN",
    `The server's directory of workspaces (--workspaces-root) ${problem}. Ask the operator to fix this.`,
    { cause: error },
  );
}

/** Runs work on the disk, and converts its errors with {@link diskError}. */
export async function onDisk<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw diskError(error);
  }
}
