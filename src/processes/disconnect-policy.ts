import type { CancelTimer, Clock } from "../base/clock.ts";
import type { ProcessOptions } from "./record.ts";

/**
 * Tracks the callers that follow a running process, and decides what happens when they leave. Callers that started the
 * process ("keepers") keep it running. Callers that attached only suspend the grace period that starts when the last
 * keeper leaves.
 */
export class DisconnectPolicy {
  readonly #options: Pick<ProcessOptions, "onDisconnect" | "disconnectGraceMs">;
  readonly #clock: Clock;
  readonly #onLost: () => void;
  #keepers = 0;
  #followers = 0;
  #cancelGrace: CancelTimer | undefined;
  #over = false;

  /** @param onLost called when no keeper is left and the grace period has passed. */
  constructor(
    options: Pick<ProcessOptions, "onDisconnect" | "disconnectGraceMs">,
    clock: Clock,
    onLost: () => void,
  ) {
    this.#options = options;
    this.#clock = clock;
    this.#onLost = onLost;
  }

  /** Counts a caller that started the process or repeated its request id. Call the result when it leaves. */
  join(): () => void {
    this.#keepers++;
    this.#cancelGrace?.();
    return once(() => {
      this.#keepers--;
      this.someoneLeft();
    });
  }

  /**
   * Counts a caller that attached. It may be the lost keeper that has come back, even before its old connection is
   * known to be lost, so the grace period does not run while it is attached. Call the result when it leaves.
   */
  follow(): () => void {
    this.#followers++;
    this.#cancelGrace?.();
    return once(() => {
      this.#followers--;
      this.someoneLeft();
    });
  }

  /**
   * If no keeper is left, the process is lost at once or, if there is a grace period, when it has passed without
   * followers.
   */
  someoneLeft(): void {
    const { onDisconnect, disconnectGraceMs } = this.#options;
    if (this.#over || onDisconnect === "DETACH" || this.#keepers > 0) return;
    if (disconnectGraceMs === 0) this.#onLost();
    else if (this.#followers === 0) {
      this.#cancelGrace?.();
      this.#cancelGrace = this.#clock.setTimer(disconnectGraceMs, this.#onLost);
    }
  }

  /** Call this when the process has ended. */
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
