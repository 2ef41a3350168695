import { mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { codeOf } from "./system-errors.ts";

/**
 * Makes a directory and those above it, as far as they are missing. Node's own recursive `mkdir` never ends where one
 * is there and takes nothing: a link that leads nowhere, a mount whose directory was removed, /proc.
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

/** Returns the error where a directory above it is missing; throws any other. */
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
