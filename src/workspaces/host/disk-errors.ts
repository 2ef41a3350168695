import { constants } from "node:os";
import { BerthError } from "../../base/errors.ts";

/** EFBIG: the file system has no files so large. */
const NO_SPACE = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

/** The code of a failed system call; undefined for other errors. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error && "code" in error)) return undefined;
  // Node has no name for it.
  return "errno" in error && error.errno === -constants.errno.EDQUOT ? "EDQUOT" : String(error.code);
}

/** The error for a client of a failed system call on the workspaces' disk. */
export function diskError(error: unknown): unknown {
  const code = codeOf(error);
  if (error instanceof BerthError || code === undefined) return error;
  if (NO_SPACE.has(code)) {
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
        ? "is missing or is no directory"
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

/** Runs work on the disk; turns its failures into {@link diskError}s. */
export async function onDisk<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw diskError(error);
  }
}
