import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, ErrorReason } from "../../gen/ts/berth/v1/error_pb.js";

const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 1_000;

/** Why the service refused a call; undefined where the call failed on its way. */
export function reasonOf(error: unknown): ErrorReason | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorDetailSchema)[0]?.reason : undefined;
}

/** Whether a call that can be made twice is worth making again: its connection broke, or the service is restarting. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof ConnectError)) return false;
  const reason = reasonOf(error);
  if (reason !== undefined) {
    return reason === ErrorReason.SHUTTING_DOWN || reason === ErrorReason.ENGINE_UNAVAILABLE;
  }
  // A connection that breaks ends its calls in one of these, with no word of the service.
  return [Code.Unavailable, Code.Canceled, Code.Aborted, Code.Internal, Code.Unknown].includes(error.code);
}

/** Makes a call again while it fails in passing, for `forMs` at most. It must be safe to make twice. */
export async function retrying<T>(forMs: number, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  const until = performance.now() + forMs;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
    try {
      return await call();
    } catch (error) {
      if (signal.aborted || !isPassing(error) || performance.now() + pause > until) throw error;
      await sleep(pause, undefined, { signal }).catch(() => {});
    }
  }
}
