import { setTimeout as sleep } from "node:timers/promises";
import { abortError } from "../../base/errors.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";

/** Attempts at a container that Docker says it cannot remove just now. */
const MAX_FAILURES = 5;

/**
 * Removes a container with its anonymous volumes; returns when it is gone, also
 * where somebody else is removing it. `timeoutMs` bounds the whole of it.
 */
export async function removeContainer(
  daemon: Daemon,
  idOrName: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const { signal, timeoutMs } = options;
  const deadline = performance.now() + timeoutMs;
  let pauseMs = 10;
  for (let failures = 0; ; ) {
    try {
      await daemon.call(
        "removing a container",
        (docker, abortSignal) => docker.getContainer(idOrName).remove({ force: true, v: true, abortSignal }),
        { signal, timeoutMs: Math.max(1, deadline - performance.now()) },
      );
      return;
    } catch (error) {
      if (isGone(error)) return;
      // Docker fails like this while a process is hard to kill or a mount still busy.
      const worthRepeating = isBeingRemoved(error) || (isDaemonFailure(error) && ++failures < MAX_FAILURES);
      if (!worthRepeating || performance.now() + pauseMs > deadline) throw error;
    }
    try {
      await sleep(pauseMs, undefined, { signal });
    } catch {
      if (signal) throw abortError(signal);
    }
    pauseMs = Math.min(pauseMs * 2, 500);
  }
}

function isGone(error: unknown): boolean {
  return answerTo(error)?.statusCode === 404;
}

function isBeingRemoved(error: unknown): boolean {
  const answer = answerTo(error);
  return answer?.statusCode === 409 && /already in progress/.test(answer.text);
}

function isDaemonFailure(error: unknown): boolean {
  return answerTo(error)?.statusCode === 500;
}
