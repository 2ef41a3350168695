import { Mutex } from "async-mutex";
import { untilAborted } from "../../base/until.ts";

interface Gate {
  /** Held across a pause, and for a moment by each start that begins. */
  readonly entrance: Mutex;
  /** Starts under way, each with when it began, oldest first. */
  readonly starts: Map<Promise<void>, number>;
}

/**
 * Keeps the pause of a container and the start of a process in it apart. Where
 * they meet, the new process is frozen half-way in, the runtime waits for it
 * with the container locked, and neither a resume nor a removal gets through
 * any more.
 */
export class StartGate {
  readonly #gates = new Map<string, Gate>();

  /**
   * Lets a start begin once no pause is under way; starts do not wait for each
   * other. Returns how to say that it is over.
   */
  async enter(containerId: string, signal?: AbortSignal): Promise<() => void> {
    const { entrance, starts } = this.#of(containerId);
    const entering = entrance.acquire();
    try {
      const open = await untilAborted(entering, signal);
      const { promise: over, resolve: leave } = Promise.withResolvers<void>();
      starts.set(over, performance.now());
      void over.then(() => starts.delete(over));
      open();
      return leave;
    } catch (error) {
      entering.then((open) => open()).catch(() => {});
      throw error;
    }
  }

  /** Runs `act` while nothing starts in the container; starts that come meanwhile wait. */
  async closed<T>(containerId: string, act: () => Promise<T>): Promise<T> {
    const { entrance, starts } = this.#of(containerId);
    return entrance.runExclusive(async () => {
      await Promise.all(starts.keys());
      return act();
    });
  }

  /**
   * Runs `act` while nothing more begins to start in the container. Starts under way
   * are waited for no longer than `withinMs`; a pause under way is not either, and then `act` is told so.
   */
  async closedWithin<T>(
    containerId: string,
    withinMs: number,
    act: (closed: boolean) => Promise<T>,
  ): Promise<T> {
    const late = AbortSignal.timeout(withinMs);
    const { entrance, starts } = this.#of(containerId);
    const entering = entrance.acquire();
    let open: () => void;
    try {
      open = await untilAborted(entering, late);
    } catch {
      void entering.then((release) => release());
      return act(false);
    }
    try {
      // One that a signal has stopped half-way in is not over before its container is.
      await untilAborted(Promise.all(starts.keys()), late).catch(() => {});
      return await act(true);
    } finally {
      open();
    }
  }

  /** For how long the oldest start under way has been, in milliseconds; 0 where there is none. */
  oldestStartMs(containerId: string): number {
    const [began] = this.#gates.get(containerId)?.starts.values() ?? [];
    return began === undefined ? 0 : performance.now() - began;
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.#gates.delete(containerId);
  }

  #of(containerId: string): Gate {
    const gate = this.#gates.get(containerId) ?? { entrance: new Mutex(), starts: new Map() };
    this.#gates.set(containerId, gate);
    return gate;
  }
}
