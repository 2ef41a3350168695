import { constants } from "node:os";
import { BerthError } from "./errors.ts";

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

/** The error of a call that failed because no more files may be open. Undefined: it failed for another reason. */
export function tooManyFiles(error: unknown): BerthError | undefined {
  if (codeOf(error) !== "EMFILE") return undefined;
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    `The service has reached its limit of open files. Try again later, or ask the operator to raise the limit: LimitNOFILE in the service's systemd unit, ulimit -n in a shell.`,
    { cause: error, retryAfterMs: 1_000 },
  );
}
