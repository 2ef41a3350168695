import { untilAborted } from "../../../base/async.ts";

/** Lets calls wait until something holds that events change. */
export class Changes {
  readonly #waiting = new Set<() => void>();

  /** Something has changed. */
  announce(): void {
    for (const check of this.#waiting) check();
  }

  /** Waits until something holds. @throws the signal's reason. */
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
