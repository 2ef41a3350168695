import { untilAborted } from "../../../base/async.ts";

/** Lets calls wait for a condition that depends on events. */
export class Changes {
  readonly #waiting = new Set<() => void>();

  /** Makes the waiting calls check their conditions again. */
  announce(): void {
    for (const check of this.#waiting) check();
  }

  /** Waits until `holds` returns true. @throws the signal's reason. */
  async until(holds: () => boolean, signal: AbortSignal): Promise<void> {
    const done = Promise.withResolvers<void>();
    const check = (): void => {
      if (holds()) done.resolve();
    };
    this.#waiting.add(check);
    try {
      check();
      await untilAborted(done.promise, signal);
    } finally {
      this.#waiting.delete(check);
    }
  }
}
