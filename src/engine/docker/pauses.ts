import { setTimeout as sleep } from "node:timers/promises";
import { throwIfAborted } from "../../base/errors.ts";
import { answerTo, translateError } from "./errors.ts";

/**
 * Least time between a pause and a resume of a container. Docker sets a
 * container's state when a call succeeds and once more when containerd's event
 * arrives; a late event of the call before overrides the state of the newer one.
 * Docker then takes a frozen container for running, and refuses to resume it.
 */
const PAUSE_SETTLE_MS = 300;

/** How containers are paused and resumed. */
export interface PauseParts {
  /** Asks Docker to. @throws what Docker answers, which is a refusal where it is so already. */
  call(ref: string, paused: boolean, signal: AbortSignal | undefined): Promise<void>;
  /** What Docker takes a container for. */
  state(ref: string, signal: AbortSignal | undefined): Promise<{ Running: boolean; Paused: boolean }>;
  /** Thaws a container by its control group, where that can be reached. */
  thaw(ref: string, signal: AbortSignal | undefined): Promise<void>;
}

/** Pauses and resumes containers, so that Docker's late events cannot leave one frozen. */
export class Pauses {
  readonly #parts: PauseParts;
  /** The last change of each container, by `performance.now()`. */
  readonly #last = new Map<string, { readonly paused: boolean; readonly at: number }>();

  constructor(parts: PauseParts) {
    this.#parts = parts;
  }

  /** Idempotent. @throws `SANDBOX_TERMINATED` where the container has ended, and what Docker refuses. */
  async set(ref: string, paused: boolean, signal?: AbortSignal): Promise<void> {
    const last = this.#last.get(ref);
    if (last !== undefined && last.paused !== paused) {
      const rest = last.at + PAUSE_SETTLE_MS - performance.now();
      if (rest > 0) await sleep(rest, undefined, { signal }).catch(() => throwIfAborted(signal));
    }
    try {
      await this.#parts.call(ref, paused, signal);
      this.#noteChange(ref, paused);
    } catch (error) {
      if (!answerTo(error)) throw error;
      // Docker refuses what is so already; the container's state distinguishes that from other refusals.
      const state = await this.#parts.state(ref, signal);
      if (!state.Running) {
        throw translateError({ statusCode: 409, message: "is not running" }, "pausing a container");
      }
      if (state.Paused !== paused) throw error;
      if (paused || !last?.paused) return;
      await this.#parts.thaw(ref, signal);
      this.#noteChange(ref, false);
    }
  }

  forget(ref: string): void {
    this.#last.delete(ref);
  }

  #noteChange(ref: string, paused: boolean): void {
    this.#last.set(ref, { paused, at: performance.now() });
  }
}
