import { existsSync, realpathSync, statSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import path from "node:path";
import { makeDirectories } from "./make-directories.ts";

/** The name of the cache within its directory. */
export const COMPILE_CACHE = "compiled";
const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;

/**
 * Caches code that V8 compiles from now on in a private directory of this user, for the next run. Cached code is
 * executed, so the cache is only used where no other user can write. Does nothing if the environment configures a
 * cache.
 */
export function keepCompiled(directory: string): void {
  // Node 20 has no such cache, and no export of these names.
  if (module.enableCompileCache === undefined || module.getCompileCacheDir() !== undefined) return;
  try {
    if (!isSteady(directory)) return;
    const cache = path.join(directory, COMPILE_CACHE);
    makeDirectories(cache, 0o700);
    if (isPrivate(cache)) module.enableCompileCache(cache);
  } catch {
    // The directory may not be writable, or the disk may be full. Continue without a cache.
  }
}

/** {@link keepCompiled} in this user's cache directory. */
export function keepCompiledForUser(): void {
  const directory = path.join(process.env.XDG_CACHE_HOME || path.join(homedir(), ".cache"), "berth");
  try {
    let place = directory;
    while (!existsSync(place)) place = path.dirname(place);
    // If HOME is another user's, files that root created there would get in that user's way.
    if (statSync(place).uid !== process.geteuid?.() || !isSteady(place)) return;
    makeDirectories(directory, 0o700);
  } catch {
    return;
  }
  keepCompiled(directory);
}

/** Whether the directory belongs to this process's user and is closed to others. */
function isPrivate(directory: string): boolean {
  const { uid, mode } = statSync(directory);
  return uid === process.geteuid?.() && (mode & OTHERS) === 0;
}

/** Whether only root and this process's user can replace the directory. */
function isSteady(directory: string): boolean {
  let steady = true;
  for (let above = realpathSync(directory); ; above = path.dirname(above)) {
    const { uid, mode } = statSync(above);
    const isOwn = uid === 0 || uid === process.geteuid?.();
    if (!isOwn || ((mode & OTHERS_WRITE) !== 0 && (mode & STICKY) === 0)) steady = false;
    // No other user can reach what is below this directory.
    else if ((mode & OTHERS) === 0) steady = true;
    if (above === path.dirname(above)) return steady;
  }
}
