import { Mutex } from "async-mutex";
import { untilAborted } from "./until-aborted.ts";

interface Gate {
  /** Held across a pause, and for a moment by each start that begins. */
  readonly entrance: Mutex;
  /** Starts under way. */
  readonly starts: Set<Promise<void>>;
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
      starts.add(over);
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
      await Promise.all(starts);
      return act();
    });
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.#gates.delete(containerId);
  }

  #of(containerId: string): Gate {
    const gate = this.#gates.get(containerId) ?? { entrance: new Mutex(), starts: new Set() };
    this.#gates.set(containerId, gate);
    return gate;
  }
}
