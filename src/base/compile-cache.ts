import { existsSync, realpathSync, statSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import path from "node:path";
import { makeDirectories } from "./make-directories.ts";

/** The name of the cache in the directory that holds it. */
export const COMPILE_CACHE = "compiled";
const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;

/**
 * Keeps what V8 compiles from now on in a directory of this user's own, and takes it from there in the next run. What
 * is in the cache is run: it is only kept where nobody else can write. Does nothing where the environment names a cache.
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
    // The directory may be closed or the disk full: it goes without, and what cannot do so says why.
  }
}

/** {@link keepCompiled} in the directory where this user's programs keep what they can make again. */
export function keepCompiledForUser(): void {
  const directory = path.join(process.env.XDG_CACHE_HOME || path.join(homedir(), ".cache"), "berth");
  try {
    let place = directory;
    while (!existsSync(place)) place = path.dirname(place);
    // With the home of another user, what root made there would be in that user's way.
    if (statSync(place).uid !== process.geteuid?.() || !isSteady(place)) return;
    makeDirectories(directory, 0o700);
  } catch {
    return;
  }
  keepCompiled(directory);
}

/** Whether it belongs to this process's user and is closed to others. */
function isPrivate(directory: string): boolean {
  const { uid, mode } = statSync(directory);
  return uid === process.geteuid?.() && (mode & OTHERS) === 0;
}

/** Whether nobody but root and this process's user can put anything else in the directory's place. */
function isSteady(directory: string): boolean {
  let steady = true;
  for (let above = realpathSync(directory); ; above = path.dirname(above)) {
    const { uid, mode } = statSync(above);
    const isOwn = uid === 0 || uid === process.geteuid?.();
    if (!isOwn || ((mode & OTHERS_WRITE) !== 0 && (mode & STICKY) === 0)) steady = false;
    // Nobody else reaches what is below.
    else if ((mode & OTHERS) === 0) steady = true;
    if (above === path.dirname(above)) return steady;
  }
}
