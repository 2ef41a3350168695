import { constants } from "node:os";

/** EFBIG: the file system has no files so large. */
const NO_SPACE = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

/** The code of a failed system call; undefined for other errors. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error && "code" in error)) return undefined;
  // Node has no name for it.
  return "errno" in error && error.errno === -constants.errno.EDQUOT ? "EDQUOT" : String(error.code);
}

/** Takes the error of a call that makes something, where that is there already. @throws any other. */
export function unlessThere(error: unknown): void {
  if (codeOf(error) !== "EEXIST") throw error;
}

/** Whether a disk, or what it allows a user, leaves no room for what a system call wanted. */
export function isNoSpace(code: string | undefined): boolean {
  return code !== undefined && NO_SPACE.has(code);
}
