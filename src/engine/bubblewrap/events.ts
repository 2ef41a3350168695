import type { EngineEvent } from "../port.ts";

/** Passes events on to all listeners. */
export class EventFeed {
  readonly #listeners = new Set<(event: EngineEvent) => void>();

  publish(event: EngineEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  /** The events from the call on, until the signal is aborted. */
  listen(signal: AbortSignal): AsyncIterable<EngineEvent> {
    const waiting: EngineEvent[] = [];
    let wake = () => {};
    const listener = (event: EngineEvent) => {
      waiting.push(event);
      wake();
    };
    const stop = () => {
      this.#listeners.delete(listener);
      wake();
    };
    if (!signal.aborted) {
      this.#listeners.add(listener);
      signal.addEventListener("abort", stop, { once: true });
    }
    return (async function* () {
      try {
        while (!signal.aborted) {
          const event = waiting.shift();
          if (event !== undefined) yield event;
          else {
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
          }
        }
      } finally {
        signal.removeEventListener("abort", stop);
        stop();
      }
    })();
  }
}
