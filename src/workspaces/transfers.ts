import { BerthError } from "../base/errors.ts";
import { Turns } from "../base/turns.ts";

/** Streams that an owner may have at once: exports, imports and comparisons, each a program or two, or a pod. */
export const MAX_STREAMS = 64;
/** Forks and measurements of an owner that are at work at once. */
const COPIES_AT_ONCE = 4;

interface Load {
  streams: number;
  copies: number;
  readonly turns: Turns;
}

/** Bounds how much of an owner's reads or fills whole workspaces at once. */
export class Transfers {
  readonly #loads = new Map<string, Load>();

  /**
   * Takes the place of a stream until it is disposed of. One too many does not wait: what a client reads from one
   * workspace it may write into another, and neither would end.
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

  /** Does work that depends on no client when its turn has come. Rejects as it does, or with the signal's error where no turn came before. */
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
