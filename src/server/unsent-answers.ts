import { BerthError } from "../base/errors.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Call } from "./call.ts";

/** How much a call may have unsent, however much others have. */
export const MIN_UNSENT_BYTES = 16 * 1024;

/**
 * Counts the answer of a unary call until the call is over, which is when the client has read it. Short answers do not
 * count.
 * @throws BerthError `ANSWER_DROPPED` if so much is unsent that there is no room for it
 */
export function countUnsent(memory: MemoryBudget, call: Call, bytes: number): void {
  if (bytes <= MIN_UNSENT_BYTES || call.signal.aborted) return;
  const share = memory.open(call.owner, call.signal);
  if (share.take(bytes)) return;
  share.close();
  throw new BerthError(
    "ANSWER_DROPPED",
    "The call was carried out, but the server has no memory for its answer, because your clients have not read so many others. Read those, and ask for it again: with the same request_id, if the call has one.",
  );
}
