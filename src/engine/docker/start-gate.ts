import { untilAborted } from "../../base/async.ts";
import { Turns } from "../../base/turns.ts";

interface Gate {
  /** Held during a pause, and briefly by each start that enters. */
  readonly entrance: Turns;
  /** Starts in progress with their start times, oldest first. */
  readonly starts: Map<Promise<void>, number>;
}

/**
 * Keeps a container's pauses and its process starts apart. If they overlapped, the new process would be frozen halfway
 * in, the runtime would wait for it with the container locked, and neither a resume nor a removal would work again.
 */
export class StartGate {
  readonly #gates = new Map<string, Gate>();

  /**
   * Admits a start once no pause is in progress. Starts do not wait for each other. Call the returned function when the
   * start is over.
   */
  async enter(containerId: string, signal?: AbortSignal): Promise<() => void> {
    const { entrance, starts } = this.#of(containerId);
    return entrance.run(async () => {
      const { promise: over, resolve: leave } = Promise.withResolvers<void>();
      starts.set(over, performance.now());
      void over.then(() => starts.delete(over));
      return leave;
    }, signal);
  }

  /** Runs `act` while nothing starts in the container. New starts wait. @param signal ends the wait for starts. */
  async closed<T>(containerId: string, act: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const { entrance, starts } = this.#of(containerId);
    return entrance.run(async () => {
      await untilAborted(Promise.all(starts.keys()), signal);
      return act();
    });
  }

  /**
   * Runs `act` while no more starts are admitted to the container. First waits at most `withinMs` for starts and a
   * pause in progress. If the pause continues, `act` gets `false`.
   */
  async closedWithin<T>(
    containerId: string,
    withinMs: number,
    act: (closed: boolean) => Promise<T>,
  ): Promise<T> {
    const late = AbortSignal.timeout(withinMs);
    const { entrance, starts } = this.#of(containerId);
    let hasEntered = false;
    const acting = entrance.run(async () => {
      hasEntered = true;
      // A start that a signal stopped halfway may last as long as its container.
      await untilAborted(Promise.all(starts.keys()), late).catch(() => {});
      return act(true);
    }, late);
    return acting.catch((error: unknown) => {
      if (hasEntered) throw error;
      return act(false);
    });
  }

  /** Age of the oldest start in progress, in milliseconds; 0 if there is none. */
  oldestStartMs(containerId: string): number {
    const [startedAt] = this.#gates.get(containerId)?.starts.values() ?? [];
    return startedAt === undefined ? 0 : performance.now() - startedAt;
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.#gates.delete(containerId);
  }

  #of(containerId: string): Gate {
    const gate = this.#gates.get(containerId) ?? { entrance: new Turns(1), starts: new Map() };
    this.#gates.set(containerId, gate);
    return gate;
  }
}
