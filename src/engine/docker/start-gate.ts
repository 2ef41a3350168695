import { Semaphore } from "async-mutex";
import { untilAborted } from "./until-aborted.ts";

/** More starts at once than there can be; a pause takes the place of all of them. */
const ALL = 1_000_000;

/**
 * Keeps the pause of a container and the start of a process in it apart. Where
 * they meet, the new process is frozen half-way in, the runtime waits for it
 * with the container locked, and neither a resume nor a removal gets through
 * any more.
 */
export class StartGate {
  readonly #gates = new Map<string, Semaphore>();

  /**
   * Lets a start begin once no pause is under way; starts do not wait for each
   * other. Returns how to say that it is over.
   */
  async enter(containerId: string, signal?: AbortSignal): Promise<() => void> {
    const entering = this.#of(containerId).acquire(1);
    try {
      const [, leave] = await untilAborted(entering, signal);
      return leave;
    } catch (error) {
      entering.then(([, leave]) => leave()).catch(() => {});
      throw error;
    }
  }

  /** Runs `act` while nothing starts in the container; starts that come meanwhile wait. */
  async closed<T>(containerId: string, act: () => Promise<T>): Promise<T> {
    return this.#of(containerId).runExclusive(act, ALL);
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.#gates.delete(containerId);
  }

  #of(containerId: string): Semaphore {
    const gate = this.#gates.get(containerId) ?? new Semaphore(ALL);
    this.#gates.set(containerId, gate);
    return gate;
  }
}
