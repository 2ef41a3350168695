import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { BerthError } from "../base/errors.ts";

/** Far larger than a configuration, or the certificates of many authorities. */
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * Whether a path is a descriptor of this process. A pipe from the shell, as in `--config <(…)`, already has its writer.
 */
export function isOwnDescriptor(path: string): boolean {
  return /^\/(?:dev\/(?:stdin|fd\/\d+)|proc\/self\/fd\/\d+)$/.test(path);
}

/**
 * Reads a file that the operator names, or a pipe that the shell has opened.
 * @throws BerthError for anything else, or if it is too large; errors of the file system
 */
export function readGivenFile(path: string): Buffer {
  const isOwn = isOwnDescriptor(path);
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  const fd = openSync(path, isOwn ? constants.O_RDONLY : constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile() && !(isOwn && stat.isFIFO())) throw unfit("it is not a file");
    return readBounded(fd);
  } finally {
    closeSync(fd);
  }
}

function readBounded(fd: number): Buffer {
  const chunks: Buffer[] = [];
  let size = 0;
  for (;;) {
    const chunk = Buffer.alloc(64 * 1024);
    const length = readSync(fd, chunk);
    if (length === 0) return Buffer.concat(chunks);
    chunks.push(chunk.subarray(0, length));
    size += length;
    if (size > MAX_BYTES) throw unfit(`it is larger than ${MAX_BYTES >> 20} MiB`);
  }
}

/** Text that says why a file cannot be read. */
export function readProblem(error: unknown): string {
  if (error instanceof BerthError) return error.message;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT") return "there is no such file";
  return code === "EACCES" ? "this user may not read it" : `it cannot be read (${code ?? error})`;
}

function unfit(problem: string): BerthError {
  return new BerthError("INVALID_ARGUMENT", problem);
}
