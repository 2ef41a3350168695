import { randomBytes } from "node:crypto";

const POOL_BYTES = 4096;

/** Random bytes of which those before {@link used} are somebody's. It is replaced, never filled again. */
let pool = randomBytes(0);
let used = 0;

/** Takes so many random bytes, 4096 at most. Asking the system for each few takes longer than what they are for. */
export function takeRandom(bytes: number): Buffer {
  if (used + bytes > pool.length) {
    pool = randomBytes(POOL_BYTES);
    used = 0;
  }
  used += bytes;
  return pool.subarray(used - bytes, used);
}
