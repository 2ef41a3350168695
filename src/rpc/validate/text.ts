import { posix } from "node:path";
import { invalidArgument } from "../../base/errors.ts";

const MAX_PATH_BYTES = 4096;

/**
 * Takes text that goes to the kernel or the engine.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it holds NUL or has more bytes than allowed
 */
export function checkText(field: string, text: string, maxBytes: number): string {
  if (text.includes("\0")) throw invalidArgument(field, "must not hold a NUL byte");
  // A UTF-16 unit becomes three bytes at most, so most texts need not be counted.
  const bytes = text.length * 3 <= maxBytes ? 0 : Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalidArgument(field, `has ${bytes} bytes; at most ${maxBytes} are allowed`);
  return text;
}

/**
 * Takes an absolute path, and drops needless slashes from it.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is relative, holds `..` or NUL, or is too long
 */
export function absolutePath(field: string, path: string): string {
  checkText(field, path, MAX_PATH_BYTES);
  if (!path.startsWith("/")) throw invalidArgument(field, `${JSON.stringify(path)} is not an absolute path`);
  if (path.split("/").includes("..")) {
    throw invalidArgument(field, `${JSON.stringify(path)} holds ".."; give the path that it means`);
  }
  return posix.normalize(path).replace(/(?<=.)\/$/, "");
}
