import { posix } from "node:path";
import { invalidArgument } from "../../core/errors.ts";

const MOST_ID_BYTES = 256;
const MOST_PATH_BYTES = 4096;
const CONTROL = /[\u0000-\u001f\u007f]/;

/** An id that callers choose. @throws `INVALID_ARGUMENT` unless it has 1-256 bytes and no control characters. */
export function checkCallerId(field: string, id: string): string {
  if (id === "") throw invalidArgument(field, "it is missing.");
  checkText(field, id, { mostBytes: MOST_ID_BYTES });
  if (CONTROL.test(id)) throw invalidArgument(field, "it holds a control character.");
  return id;
}

/** The same for an id that may be left out: then undefined. */
export function checkOptionalCallerId(field: string, id: string): string | undefined {
  return id === "" ? undefined : checkCallerId(field, id);
}

/** Text that goes to the kernel or the engine. @throws `INVALID_ARGUMENT` for NUL, or more bytes than allowed. */
export function checkText(field: string, text: string, bounds: { readonly mostBytes: number }): string {
  if (text.includes("\0"))
    throw invalidArgument(field, "it holds a NUL byte, which no argument, path or variable can.");
  // A character has at most three bytes for each of its UTF-16 units, so most texts need not be counted.
  const bytes = text.length * 3 <= bounds.mostBytes ? 0 : Buffer.byteLength(text);
  if (bytes > bounds.mostBytes)
    throw invalidArgument(field, `it has ${bytes} bytes; at most ${bounds.mostBytes} are allowed.`);
  return text;
}

/** A path inside a sandbox or on the host, without needless slashes. @throws `INVALID_ARGUMENT` unless it is absolute and has no `..`. */
export function checkAbsolutePath(field: string, path: string): string {
  checkText(field, path, { mostBytes: MOST_PATH_BYTES });
  if (!path.startsWith("/")) throw invalidArgument(field, `${JSON.stringify(path)} is not an absolute path.`);
  if (path.split("/").includes(".."))
    throw invalidArgument(field, `${JSON.stringify(path)} holds "..". Give the path it means.`);
  return posix.normalize(path).replace(/(?<=.)\/$/, "");
}
