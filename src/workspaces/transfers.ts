import { BerthError } from "../base/errors.ts";
import { Turns } from "../base/turns.ts";

/**
 * How many streams an owner may have at once: exports, imports and comparisons. Each takes one or two programs, or a
 * pod.
 */
export const MAX_STREAMS = 64;
/** How many forks and measurements of an owner run at once. */
const COPIES_AT_ONCE = 4;

interface Load {
  streams: number;
  copies: number;
  readonly turns: Turns;
}

/** Limits how much an owner reads or fills whole workspaces at the same time. */
export class Transfers {
  readonly #loads = new Map<string, Load>();

  /**
   * Reserves a stream until the result is disposed of. Beyond the limit it fails instead of waiting: a client may pipe
   * one workspace into another, and then neither would end.
   * @throws `TOO_MANY_OPERATIONS`
   */
  stream(owner: string): Disposable {
    const load = this.#loadOf(owner);
    if (load.streams >= MAX_STREAMS) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `${MAX_STREAMS} exports, imports and comparisons of workspaces are running, which is the limit. Retry when others have ended.`,
        { metadata: { limit: String(MAX_STREAMS) } },
      );
    }
    load.streams++;
    return {
      [Symbol.dispose]: () => {
        load.streams--;
        this.#forget(owner, load);
      },
    };
  }

  /**
   * Queues work that depends on no client. Rejects like the work, or with the signal's error if the signal aborts
   * first.
   */
  async copy<T>(owner: string, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const load = this.#loadOf(owner);
    load.copies++;
    try {
      return await load.turns.run(work, signal);
    } finally {
      load.copies--;
      this.#forget(owner, load);
    }
  }

  #loadOf(owner: string): Load {
    const known = this.#loads.get(owner) ?? { streams: 0, copies: 0, turns: new Turns(COPIES_AT_ONCE) };
    this.#loads.set(owner, known);
    return known;
  }

  #forget(owner: string, { streams, copies }: Load): void {
    if (streams + copies === 0) this.#loads.delete(owner);
  }
}
