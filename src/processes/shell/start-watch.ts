import { abortError, BerthError } from "../../base/errors.ts";
import type { Obstacle, OutsideControl } from "../../engine/port.ts";
import { noProcesses } from "./errors.ts";
import { BEGIN_TIMEOUT_MS } from "./shell-job.ts";

/** After how long a job that has not begun is looked at from outside, first and at most. */
const FIRST_LOOK_MS = 300;
const MAX_LOOK_MS = 1_000;
/** An obstacle that is seen for so long is none that goes away by itself. */
const OBSTACLE_MS = 1_500;
/** How much earlier the shell may have been started that a start waits for. */
const EARLIER_MS = 15_000;
/** How long a start may go on that nobody waits for any more: it may be just about to come to something. */
const LEFT_MS = 800;

/** A loaded machine may need this long to start a command that may run for a moment only. */
const MIN_BEGIN_MS = 10_000;
/** How much later than its timeout a command may begin, to end at once. */
const LATE_BEGIN_MS = 2_000;

/** What a start is watched with. */
export interface StartWatchParts {
  /** The sandbox's processes from outside; undefined where they are not seen. */
  readonly outside: () => Promise<OutsideControl | undefined>;
  /** Called where signals stop every shell that is started in the sandbox. */
  readonly onStopped: () => void;
  /** How long the job may run; undefined: for as long as it likes. It need not begin where that is over. */
  readonly timeoutMs: number | undefined;
}

/**
 * Starts a job, which may take its time to begin and no longer. Where something
 * in the sandbox keeps it from that for good, as can be seen from outside, that
 * is said soon. The signal that `start` gets says that it is not waited for any more.
 * @param signal the caller's: once it is aborted, the start has a moment to come to something.
 * @throws `TOO_MANY_OPERATIONS` where the sandbox has reached its bound of processes; `DEADLINE_EXCEEDED`.
 */
export async function watchStart<T>(
  { outside, onStopped, timeoutMs = BEGIN_TIMEOUT_MS }: StartWatchParts,
  start: (limit: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const beginMs = Math.min(Math.max(timeoutMs + LATE_BEGIN_MS, MIN_BEGIN_MS), BEGIN_TIMEOUT_MS);
  const limit = new AbortController();
  const givenUp = Promise.withResolvers<never>();
  givenUp.promise.catch(() => {});
  const giveUp = (error: BerthError): void => {
    limit.abort(error);
    givenUp.reject(error);
  };
  const begun = performance.now();
  let seen: { readonly obstacle: Obstacle; readonly since: number } | undefined;
  let over = false;
  const look = async (): Promise<void> => {
    const view = await outside();
    const sinceMs = performance.now() - begun + EARLIER_MS;
    const obstacle = await view?.obstacle(sinceMs);
    if (over) return;
    if (obstacle !== seen?.obstacle) seen = obstacle && { obstacle, since: performance.now() };
    const isLasting = seen !== undefined && performance.now() - seen.since >= OBSTACLE_MS;
    if (obstacle === "stopped") {
      if (isLasting) {
        await view?.endStoppedStarts(sinceMs);
        if (!over) onStopped();
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
  const late = setTimeout(() => giveUp(tooLate(beginMs)), beginMs).unref();
  let left: NodeJS.Timeout | undefined;
  const onLeft = (): void => {
    left = setTimeout(async () => {
      // Where it cannot be killed, it is to be known when it begins after all.
      if ((await outside()) !== undefined && !over) giveUp(abortError(signal));
    }, LEFT_MS).unref();
  };
  signal.addEventListener("abort", onLeft, { once: true });
  if (signal.aborted) onLeft();
  try {
    return await Promise.race([start(limit.signal), givenUp.promise]);
  } catch (error) {
    if (limit.signal.aborted) throw error;
    throw await orObstacle(error, outside, performance.now() - begun);
  } finally {
    over = true;
    signal.removeEventListener("abort", onLeft);
    for (const timer of [looking, late, left]) clearTimeout(timer);
  }
}

/**
 * The error of what may have failed because of an {@link Obstacle}, where there is one now; else the given one.
 * @param lastedMs how long ago it began.
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
    "The command could not begin: something in the sandbox stops every process that is started there (SIGSTOP). End it, or delete the sandbox.",
    { cause },
  );
}

function tooLate(beginMs: number): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    `The command did not begin within ${beginMs / 1000} s: no shell of the sandbox answers. Its /bin/sh may be broken, or its processes may use up all of its CPU time.`,
  );
}
