import type { ByteString } from "../base/byte-string.ts";
import { invalidArgument } from "../base/errors.ts";

/** A path as a caller gave it. */
export interface RequestedPath {
  /** Name of the request's field, for errors. */
  readonly field: string;
  /** Not empty, without NUL. */
  readonly bytes: ByteString;
}

/** Longest path that the kernel accepts, without its NUL. */
const MAX_PATH_BYTES = 4095;

/**
 * Makes a path absolute. Resolves ".", ".." and repeated slashes lexically, before any symbolic link is followed.
 * @throws `INVALID_ARGUMENT` if ".." leads out of the working directory that a path starts in, or above the root.
 */
export function resolvePath(workingDir: ByteString, { field, bytes }: RequestedPath): ByteString {
  const home = namesOf(workingDir);
  const names = bytes.startsWith("/") ? [] : [...home];
  // A path that enters the working directory without using ".." must stay in it.
  let floor = bytes.startsWith("/") ? 0 : home.length;
  let climbed = false;
  for (const name of namesOf(bytes)) {
    if (name !== "..") names.push(name);
    else if (names.length > floor) names.pop();
    else throw leaves(field, floor);
    climbed ||= name === "..";
    if (!climbed && isSame(names, home)) floor = home.length;
  }
  const path = `/${names.join("/")}`;
  if (path.length > MAX_PATH_BYTES) {
    throw invalidArgument(
      field,
      `as an absolute path it has ${path.length} bytes; at most ${MAX_PATH_BYTES} are allowed.`,
    );
  }
  return path;
}

/**
 * Like {@link resolvePath}, for something that is removed or moved. That may be the working directory, without which no
 * command starts, only if its absolute path is given: "rm -r ." is refused as well.
 */
export function resolveEntry(workingDir: ByteString, requested: RequestedPath): ByteString {
  const path = resolvePath(workingDir, requested);
  if (!requested.bytes.startsWith("/") && isSame(namesOf(path), namesOf(workingDir))) {
    throw invalidArgument(
      requested.field,
      "it is the working directory, where commands start. Name what is in it, or give the absolute path that is meant.",
    );
  }
  return path;
}

/** The path of an entry of a directory. */
export function childPath(directory: ByteString, name: ByteString): ByteString {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

/** Whether an absolute path is equal to another or below it. */
export function isWithin(path: ByteString, directory: ByteString): boolean {
  return path === directory || path.startsWith(childPath(directory, ""));
}

function namesOf(path: ByteString): ByteString[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

function isSame(a: readonly ByteString[], b: readonly ByteString[]): boolean {
  return a.length === b.length && a.every((name, index) => name === b[index]);
}

function leaves(field: string, floor: number) {
  return invalidArgument(
    field,
    floor === 0
      ? '".." climbs above the root directory.'
      : '".." leads out of the working directory. Give the absolute path that is meant.',
  );
}
