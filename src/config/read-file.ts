import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { BerthError } from "../base/errors.ts";

/** Far more than a configuration or the certificates of many authorities take. */
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * Reads a file that the operator names.
 * @throws BerthError for what is no file, or too large; errors of the file system
 */
export function readGivenFile(path: string): Buffer {
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw unfit("it is not a file");
    if (stat.size > MAX_BYTES) throw unfit(`it is larger than ${MAX_BYTES >> 20} MiB`);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Why a file cannot be read, in words. */
export function readProblem(error: unknown): string {
  if (error instanceof BerthError) return error.message;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT") return "there is no such file";
  return code === "EACCES" ? "this user may not read it" : `it cannot be read (${code ?? error})`;
}

function unfit(problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", problem);
}
