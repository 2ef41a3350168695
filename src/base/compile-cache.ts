import { mkdirSync, statSync } from "node:fs";
import module from "node:module";
import path from "node:path";

/** The name of the cache in the directory that holds it. */
export const COMPILE_CACHE = "compiled";
const OTHERS = 0o077;

/**
 * Keeps what V8 compiles from now on in a directory of the service's own, and takes it from there at the next start. What
 * is in the cache is run: it is only kept where nobody else can write. Does nothing where the environment names a cache.
 */
export function keepCompiled(directory: string): void {
  // Node 20 has no such cache, and no export of these names.
  if (module.getCompileCacheDir?.() !== undefined) return;
  const cache = path.join(directory, COMPILE_CACHE);
  try {
    if (!isOwn(directory)) return;
    mkdirSync(cache, { recursive: true, mode: 0o700 });
    module.enableCompileCache?.(cache);
  } catch {
    // The directory may be closed or the disk full, which whoever starts the service learns from what cannot do without.
  }
}

/** Whether it is there, belongs to this process's user and is closed to others. */
function isOwn(directory: string): boolean {
  const found = statSync(directory, { throwIfNoEntry: false });
  if (!found?.isDirectory()) return false;
  return found.uid === process.geteuid?.() && (found.mode & OTHERS) === 0;
}
