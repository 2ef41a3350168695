import { setTimeout as sleep } from "node:timers/promises";
import { ErrorReason } from "../../gen/ts/berth/v1/error_pb.js";
import { remarkLine } from "./colour.ts";
import { EXIT } from "./exit.ts";
import { callFailure, isConnectionFailure, reasonOf } from "./failure.ts";
import { type Io, write } from "./io.ts";
import type { ServiceAddress } from "./service-address.ts";

/** How many times in a row to retry after a broken connection. */
const MAX_RETRIES = 6;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 4000;

/** Reports that a connection broke and another one is tried. */
export type OnRetry = (error: unknown, attempt: number, most: number) => Promise<void>;

/** Whether the connection broke, or ends because the service is shutting down: it may be restarting. */
function isBroken(error: unknown, address: ServiceAddress): boolean {
  return reasonOf(error) === ErrorReason.SHUTTING_DOWN || isConnectionFailure(error, address);
}

/**
 * Waits after a broken connection until the next attempt.
 * @param failures how many broke in a row, from 1
 * @throws the error itself if it is another one, or if there were enough attempts
 */
export async function beforeRetry(
  error: unknown,
  failures: number,
  {
    address,
    onRetry,
    signal,
  }: { readonly address: ServiceAddress; readonly onRetry: OnRetry; readonly signal: AbortSignal },
): Promise<void> {
  if (signal.aborted || !isBroken(error, address) || failures > MAX_RETRIES) throw error;
  await onRetry(error, failures, MAX_RETRIES);
  await sleep(Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), MAX_RETRY_MS), undefined, { signal });
}

/** Prints to stderr that another connection is tried. */
export function tellRetry(io: Io, address: ServiceAddress, signal: AbortSignal): OnRetry {
  return async (error, attempt, most) => {
    const failure = callFailure(error, address, EXIT.failed);
    const why = failure instanceof Error ? failure.message : String(failure);
    await write(io.stderr, remarkLine(`${why}; reconnecting (${attempt} of ${most})`), signal);
  };
}
