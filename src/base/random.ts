import { randomBytes } from "node:crypto";

const POOL_BYTES = 4096;

/** Random bytes, of which those before {@link used} have been handed out. The buffer is replaced, never refilled. */
let pool = randomBytes(0);
let used = 0;

/**
 * Returns this many random bytes, at most 4096. Pooled, because a system call for every few bytes would be too slow.
 */
export function takeRandom(bytes: number): Buffer {
  if (used + bytes > pool.length) {
    pool = randomBytes(POOL_BYTES);
    used = 0;
  }
  used += bytes;
  return pool.subarray(used - bytes, used);
}
