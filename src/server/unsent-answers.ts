import { BerthError } from "../base/errors.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Call } from "./call.ts";

/** How much a call may have unsent, however much others have. */
export const MIN_UNSENT_BYTES = 16 * 1024;

/**
 * Counts an answer, or a message of one, until the call is over, which is when the client has read it. Disposing of the
 * result ends that earlier. Short answers do not count.
 * @throws BerthError `TOO_MANY_OPERATIONS` if so much is unsent that there is no room for it
 */
export function countUnsent(memory: MemoryBudget, call: Call, bytes: number): Disposable | undefined {
  if (bytes <= MIN_UNSENT_BYTES) return undefined;
  const share = memory.open(call.owner, call.signal);
  if (share.take(bytes)) return share;
  share.close();
  throw new BerthError(
    "TOO_MANY_OPERATIONS",
    "Your clients have not read so many answers that the server has no memory for this one. Read those, then try again.",
  );
}
