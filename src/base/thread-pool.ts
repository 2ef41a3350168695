import { access } from "node:fs";

/** How long an operation that the pool has missed waits at most. */
const WAKE_INTERVAL_MS = 500;

let awake = false;

/**
 * Gives Node's thread pool a trivial job twice a second while the process lives. The condition variables of glibc
 * before 2.41 can lose a wake-up (https://sourceware.org/bugzilla/show_bug.cgi?id=25847): a file operation then stays
 * queued while all threads of the pool sleep, until another one is queued. Without this, a start that waits for a
 * single copy could wait forever. Idempotent.
 */
export function keepThreadPoolAwake(): void {
  if (awake) return;
  awake = true;
  setInterval(() => access("/", () => {}), WAKE_INTERVAL_MS).unref();
}
