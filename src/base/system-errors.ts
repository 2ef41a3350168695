import { constants } from "node:os";

/** EFBIG: the file system does not support files of that size. */
const NO_SPACE = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

/** The code of a failed system call; undefined for other errors. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error && "code" in error)) return undefined;
  // Node has no name for EDQUOT.
  return "errno" in error && error.errno === -constants.errno.EDQUOT ? "EDQUOT" : String(error.code);
}

/** Ignores the error of creating something that already exists. @throws any other error */
export function unlessThere(error: unknown): void {
  if (codeOf(error) !== "EEXIST") throw error;
}

/** Whether a system call failed because the disk or a quota has no room. */
export function isNoSpace(code: string | undefined): boolean {
  return code !== undefined && NO_SPACE.has(code);
}
