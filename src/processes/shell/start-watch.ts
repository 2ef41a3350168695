import { abortError, BerthError } from "../../base/errors.ts";
import type { Obstacle, OutsideControl } from "../../engine/port.ts";
import { noProcesses } from "./errors.ts";
import { START_TIMEOUT_MS } from "./shell-job.ts";

/** The time until a job that has not started is first checked from outside, and the longest time between checks. */
const FIRST_LOOK_MS = 300;
const MAX_LOOK_MS = 1_000;
/** An obstacle that lasts this long does not go away by itself. */
const OBSTACLE_MS = 1_500;
/** How much earlier the shell that a start waits for may have been started. */
const EARLIER_MS = 15_000;
/** How long a start may continue when nobody waits for it any more: it may be about to succeed. */
const LEFT_MS = 800;

/** The shortest limit for a start: a busy machine may need this long even for a command with a short timeout. */
const MIN_START_MS = 10_000;
/** How much later than its timeout a command may still start; it then ends at once. */
const LATE_START_MS = 2_000;

/** What {@link watchStart} needs. */
export interface StartWatchParts {
  /** Returns the control of the sandbox's processes from outside; undefined if there is none. */
  readonly outside: () => Promise<OutsideControl | undefined>;
  /**
   * Called when signals stop every shell that is started in the sandbox, with how long this has been observed, in
   * milliseconds.
   */
  readonly onStopped: (seenMs: number) => void;
  /** The job's timeout; undefined: none. The job need not start after that. */
  readonly timeoutMs: number | undefined;
}

/**
 * Starts a job within a time limit. Fails early if, as seen from outside, something in the sandbox permanently prevents
 * the start. The signal passed to `start` aborts when nobody waits for the start any more.
 * @param signal the caller's signal. Once it is aborted, the start still has a moment to succeed.
 * @throws `TOO_MANY_OPERATIONS` if the sandbox has reached its limit of processes; `DEADLINE_EXCEEDED`.
 */
export async function watchStart<T>(
  { outside, onStopped, timeoutMs = START_TIMEOUT_MS }: StartWatchParts,
  start: (limit: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const startMs = Math.min(Math.max(timeoutMs + LATE_START_MS, MIN_START_MS), START_TIMEOUT_MS);
  const limit = new AbortController();
  const givenUp = Promise.withResolvers<never>();
  givenUp.promise.catch(() => {});
  const giveUp = (error: BerthError): void => {
    limit.abort(error);
    givenUp.reject(error);
  };
  const startedAt = performance.now();
  let seen: { readonly obstacle: Obstacle; readonly since: number } | undefined;
  let over = false;
  const look = async (): Promise<void> => {
    const view = await outside();
    const sinceMs = performance.now() - startedAt + EARLIER_MS;
    const obstacle = await view?.obstacle(sinceMs);
    if (over) return;
    if (obstacle !== seen?.obstacle) seen = obstacle && { obstacle, since: performance.now() };
    const isLasting = seen !== undefined && performance.now() - seen.since >= OBSTACLE_MS;
    if (obstacle === "stopped") {
      if (isLasting) {
        await view?.endStoppedStarts(sinceMs);
        if (!over) onStopped(OBSTACLE_MS);
      } else await view?.continueStarts(sinceMs);
    }
    if (isLasting && obstacle !== undefined) giveUp(errorOf(obstacle));
  };
  let lookMs = FIRST_LOOK_MS;
  const onLook = (): void => {
    const next = (): void => {
      lookMs = Math.min(lookMs * 1.5, MAX_LOOK_MS);
      if (!over) looking = setTimeout(onLook, lookMs).unref();
    };
    look().then(next, next);
  };
  let looking = setTimeout(onLook, lookMs).unref();
  const late = setTimeout(() => giveUp(tooLate(startMs)), startMs).unref();
  let left: NodeJS.Timeout | undefined;
  const onLeft = (): void => {
    left = setTimeout(async () => {
      // If a start cannot be killed from outside, keep waiting for it: it may still succeed.
      if ((await outside()) !== undefined && !over) giveUp(abortError(signal));
    }, LEFT_MS).unref();
  };
  signal.addEventListener("abort", onLeft, { once: true });
  if (signal.aborted) onLeft();
  try {
    return await Promise.race([start(limit.signal), givenUp.promise]);
  } catch (error) {
    if (limit.signal.aborted) throw error;
    throw await orObstacle(error, outside, performance.now() - startedAt);
  } finally {
    over = true;
    signal.removeEventListener("abort", onLeft);
    for (const timer of [looking, late, left]) clearTimeout(timer);
  }
}

/**
 * Returns the error for the {@link Obstacle} that may have caused a failure, if there is one now; else the given error.
 * @param lastedMs how long the failed operation took.
 */
export async function orObstacle(
  error: unknown,
  outside: StartWatchParts["outside"],
  lastedMs: number,
): Promise<unknown> {
  const mayBe =
    error instanceof BerthError && /^(ENGINE_UNAVAILABLE|TOO_MANY_OPERATIONS)$/.test(error.reason);
  const obstacle = mayBe ? await (await outside())?.obstacle(lastedMs + EARLIER_MS) : undefined;
  return obstacle === undefined ? error : errorOf(obstacle, error);
}

function errorOf(obstacle: Obstacle, cause?: unknown): BerthError {
  return obstacle === "stopped" ? stopped(cause) : noProcesses(cause);
}

function stopped(cause: unknown): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    "The command could not start: something in the sandbox stops every process that is started there (SIGSTOP). End it, or delete the sandbox.",
    { cause },
  );
}

function tooLate(startMs: number): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    `The command did not start within ${startMs / 1000} s: no shell of the sandbox answers. Its /bin/sh may be broken, or its processes may use all of its CPU time.`,
  );
}
