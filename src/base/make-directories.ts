import { mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { codeOf } from "./system-errors.ts";

/**
 * Creates a directory and its missing parents. Node's recursive `mkdir` never returns if a parent exists in which
 * nothing can be created: a dangling link, a mount whose directory was removed, /proc.
 * @throws the system's errors.
 */
export function makeDirectories(directory: string, mode = 0o777): void {
  const missing = tryToMake(directory, mode);
  if (missing === undefined) return;
  const parent = path.dirname(directory);
  if (parent === directory) throw missing;
  makeDirectories(parent, mode);
  const stillMissing = tryToMake(directory, mode);
  if (stillMissing !== undefined) throw stillMissing;
}

/** Returns the error if a parent is missing; throws any other error. */
function tryToMake(directory: string, mode: number): unknown {
  try {
    mkdirSync(directory, mode);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return error;
    if (!isDirectory(directory)) throw error;
  }
  return undefined;
}

function isDirectory(place: string): boolean {
  try {
    return statSync(place).isDirectory();
  } catch {
    return false;
  }
}
