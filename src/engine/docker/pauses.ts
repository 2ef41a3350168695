import { setTimeout as sleep } from "node:timers/promises";
import { throwIfAborted } from "../../base/errors.ts";
import { answerTo, translateError } from "./errors.ts";

/**
 * Minimum time between a pause and a resume of a container. Docker sets a container's state when a call succeeds, and
 * again when containerd's event arrives. A late event of an earlier call overwrites the state of a newer one. Docker
 * then believes that a frozen container is running, and refuses to resume it.
 */
const PAUSE_SETTLE_MS = 300;

/**
 * How long to repeat a pause. A process freezes only when it gets CPU time, but runc gives up after some hundred
 * milliseconds, and a busy machine or the container's own limit may not give it any by then.
 */
const FREEZE_MS = 10_000;
const FREEZE_REST_MS = 50;
const UNABLE_TO_FREEZE = /unable to freeze|waiting for the cgroup to freeze/i;

/** What {@link Pauses} needs to pause and resume containers. */
interface PauseParts {
  /** Asks Docker to pause or resume. @throws Docker's refusal, also if the container is already in that state. */
  call(ref: string, paused: boolean, signal: AbortSignal | undefined): Promise<void>;
  /** The state of a container according to Docker. */
  state(ref: string, signal: AbortSignal | undefined): Promise<{ Running: boolean; Paused: boolean }>;
  /** Thaws a container through its control group, if that is accessible. */
  thaw(ref: string, signal: AbortSignal | undefined): Promise<void>;
}

/** Pauses and resumes containers such that Docker's late events cannot leave one frozen. */
export class Pauses {
  readonly #parts: PauseParts;
  /** The last change of each container, by `performance.now()`. */
  readonly #last = new Map<string, { readonly paused: boolean; readonly at: number }>();

  constructor(parts: PauseParts) {
    this.#parts = parts;
  }

  /** Pauses or resumes. Idempotent. @throws `SANDBOX_TERMINATED` if the container has ended, or Docker's refusal. */
  async set(ref: string, paused: boolean, signal?: AbortSignal): Promise<void> {
    const last = this.#last.get(ref);
    if (last !== undefined && last.paused !== paused) {
      const rest = last.at + PAUSE_SETTLE_MS - performance.now();
      if (rest > 0) await sleep(rest, undefined, { signal }).catch(() => throwIfAborted(signal));
    }
    try {
      await this.#call(ref, paused, signal);
      this.#noteChange(ref, paused);
    } catch (error) {
      if (!answerTo(error)) throw error;
      // Docker refuses if the container is already in that state. Its state distinguishes that from other refusals.
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

  async #call(ref: string, paused: boolean, signal: AbortSignal | undefined): Promise<void> {
    const begin = performance.now();
    for (;;) {
      try {
        return await this.#parts.call(ref, paused, signal);
      } catch (error) {
        const text = answerTo(error)?.text ?? "";
        if (!UNABLE_TO_FREEZE.test(text) || performance.now() - begin > FREEZE_MS) throw error;
      }
      await sleep(FREEZE_REST_MS, undefined, { signal }).catch(() => throwIfAborted(signal));
    }
  }

  #noteChange(ref: string, paused: boolean): void {
    this.#last.set(ref, { paused, at: performance.now() });
  }
}
