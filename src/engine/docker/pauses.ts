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
 * runc gives the kernel a quarter of a second to freeze a container's processes, each of which needs a CPU for that, and
 * then leaves the container running. On a busy machine that is not enough, so Berth asks again. With version 2 of
 * control groups runc waits for ten seconds by itself. Other changes of the sandbox wait until the pause is over.
 */
const MAX_FREEZES = 40;
const FREEZES_MS = 10_000;
const UNFROZEN = /unable to freeze|waiting for the cgroup to freeze/i;
const FREEZE_PAUSE_MS = 50;

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
      // A timer may be early, because it counts from the beginning of the event loop's turn.
      const restMs = () => last.at + PAUSE_SETTLE_MS - performance.now();
      for (let rest = restMs(); rest > 0; rest = restMs()) await pause(rest, signal);
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

  async #call(ref: string, paused: boolean, signal?: AbortSignal): Promise<void> {
    const since = performance.now();
    for (let freezes = 1; ; freezes++) {
      try {
        return await this.#parts.call(ref, paused, signal);
      } catch (error) {
        const isLast = freezes === MAX_FREEZES || performance.now() - since > FREEZES_MS;
        if (isLast || !UNFROZEN.test(answerTo(error)?.text ?? "")) throw error;
      }
      await pause(FREEZE_PAUSE_MS, signal);
    }
  }

  forget(ref: string): void {
    this.#last.delete(ref);
  }

  #noteChange(ref: string, paused: boolean): void {
    this.#last.set(ref, { paused, at: performance.now() });
  }
}

/** Waits. @throws the signal's reason */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => throwIfAborted(signal));
}
