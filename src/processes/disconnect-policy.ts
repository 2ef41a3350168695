import type { CancelTimer, Clock } from "../base/clock.ts";
import type { ProcessOptions } from "./record.ts";

/**
 * Who follows a running process, and what happens to it when they leave. Callers
 * that started it keep it; callers that attached only hold off the grace period
 * that starts when its last keeper leaves.
 */
export class DisconnectPolicy {
  readonly #options: Pick<ProcessOptions, "onDisconnect" | "disconnectGraceMs">;
  readonly #clock: Clock;
  readonly #onLost: () => void;
  #keepers = 0;
  #followers = 0;
  #cancelGrace: CancelTimer | undefined;
  #over = false;

  /** @param onLost called when no keeper is left and the grace has passed. */
  constructor(
    options: Pick<ProcessOptions, "onDisconnect" | "disconnectGraceMs">,
    clock: Clock,
    onLost: () => void,
  ) {
    this.#options = options;
    this.#clock = clock;
    this.#onLost = onLost;
  }

  /** Counts a caller that started it, or asked for it again by its request id. Call the result when it leaves. */
  join(): () => void {
    this.#keepers++;
    this.#cancelGrace?.();
    return once(() => {
      this.#keepers--;
      this.someoneLeft();
    });
  }

  /**
   * Counts a caller that attached. It may be the lost one that has come back, even
   * before its old connection is known to be lost: the grace does not run while
   * it is there. Call the result when it leaves.
   */
  follow(): () => void {
    this.#followers++;
    this.#cancelGrace?.();
    return once(() => {
      this.#followers--;
      this.someoneLeft();
    });
  }

  /** Checks whether a keeper is left. */
  someoneLeft(): void {
    const { onDisconnect, disconnectGraceMs } = this.#options;
    if (this.#over || onDisconnect === "DETACH" || this.#keepers > 0) return;
    if (disconnectGraceMs === 0) this.#onLost();
    else if (this.#followers === 0) {
      this.#cancelGrace?.();
      this.#cancelGrace = this.#clock.setTimer(disconnectGraceMs, this.#onLost);
    }
  }

  /** The process has ended. */
  end(): void {
    this.#over = true;
    this.#cancelGrace?.();
    this.#cancelGrace = undefined;
  }
}

function once(act: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    act();
  };
}
