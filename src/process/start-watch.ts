import { BerthError } from "../core/errors.ts";
import type { Obstacle, OutsideControl } from "../core/ports/engine.ts";
import { BEGIN_TIMEOUT_MS } from "./job-bounds.ts";

/** After how long a job that has not begun is looked at from outside, and how often then. */
const LOOK_MS = 1_500;

/** A loaded machine may need this long to start a command that may run for a moment only. */
const LEAST_BEGIN_MS = 10_000;
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
 * is said at once. The signal that `start` gets says that it is not waited for any more.
 * @throws `TOO_MANY_OPERATIONS` where the sandbox has reached its bound of processes; `DEADLINE_EXCEEDED`.
 */
export async function watchStart<T>(
  { outside, onStopped, timeoutMs = BEGIN_TIMEOUT_MS }: StartWatchParts,
  start: (limit: AbortSignal) => Promise<T>,
): Promise<T> {
  const beginMs = Math.min(Math.max(timeoutMs + LATE_BEGIN_MS, LEAST_BEGIN_MS), BEGIN_TIMEOUT_MS);
  const limit = new AbortController();
  const givenUp = Promise.withResolvers<never>();
  givenUp.promise.catch(() => {});
  const giveUp = (error: BerthError): void => {
    limit.abort(error);
    givenUp.reject(error);
  };
  let seen: Obstacle | undefined;
  let over = false;
  const begun = performance.now();
  const look = async (): Promise<void> => {
    const view = await outside();
    const obstacle = await view?.obstacle(performance.now() - begun);
    if (over) return;
    // Left alone, it would begin when it is continued. On Docker all later starts wait for it until then.
    if (obstacle === "stopped") await view?.endStoppedStarts(performance.now() - begun);
    if (over) return;
    // Seen twice, it is none that goes away by itself.
    if (obstacle !== undefined && obstacle === seen) {
      if (obstacle === "stopped") onStopped();
      giveUp(obstacle === "stopped" ? stopped() : noProcesses());
    }
    seen = obstacle;
    looking = setTimeout(onLook, LOOK_MS).unref();
  };
  const onLook = (): void => void look().catch(() => {});
  let looking = setTimeout(onLook, LOOK_MS).unref();
  const late = setTimeout(() => giveUp(tooLate(beginMs)), beginMs).unref();
  try {
    return await Promise.race([start(limit.signal), givenUp.promise]);
  } finally {
    over = true;
    clearTimeout(looking);
    clearTimeout(late);
  }
}

function stopped(): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    "The command could not begin: something in the sandbox stops every process that is started there (SIGSTOP). End it, or delete the sandbox.",
  );
}

function noProcesses(): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The process could not be started: the sandbox has reached its bound of processes or memory.",
    { retryAfterMs: 1000 },
  );
}

function tooLate(beginMs: number): BerthError {
  return new BerthError(
    "DEADLINE_EXCEEDED",
    `The command did not begin within ${beginMs / 1000} s: no shell of the sandbox answers. Its /bin/sh may be broken, or its processes may use up all of its CPU time.`,
  );
}
