import type { EngineEvent } from "./port.ts";

/** Limit of unread events. Beyond it the reader counts as gone, and must list again. */
const MAX_UNREAD = 100_000;

/** Takes events for a reader. */
export interface EventSink {
  push(event: EngineEvent): void;
  /** The reader gets this error after the events before it. Only the first one counts. */
  fail(error: Error): void;
}

/**
 * The events that a source reports until the signal is aborted, from the call on, not from the first iteration.
 * @param listen connects the sink to the source. Returns a function that disconnects it; idempotent.
 */
export function collectEvents(
  listen: (sink: EventSink) => () => void,
  signal: AbortSignal,
): AsyncGenerator<EngineEvent> {
  let unread: EngineEvent[] = [];
  let count = 0;
  let lost: Error | undefined;
  let wake = (): void => {};
  const fail = (error: Error): void => {
    lost ??= error;
    wake();
  };
  const push = (event: EngineEvent): void => {
    if (count >= MAX_UNREAD) fail(new Error("too many events are unread"));
    else {
      unread.push(event);
      count++;
    }
    wake();
  };
  const stop = listen({ push, fail });
  const onAbort = (): void => {
    stop();
    wake();
  };
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  return (async function* () {
    try {
      while (!signal.aborted) {
        // All at once: to take the first of many from an array moves all others.
        const batch = unread;
        unread = [];
        for (const event of batch) {
          count--;
          yield event;
          if (signal.aborted) return;
        }
        if (batch.length > 0) continue;
        if (lost !== undefined) throw lost;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      stop();
    }
  })();
}
