/** How much typed or pasted data may wait to be sent. */
const MAX_WAITING_BYTES = 1024 * 1024;
const MAX_AT_ONCE_BYTES = 256 * 1024;

interface KeyboardOptions {
  /** Writes bytes at an offset. Resolves with the offset of the next ones. */
  readonly write: (offset: bigint, data: Uint8Array) => Promise<bigint>;
  /** Reports whether there is room for more. */
  readonly onRoom: (room: boolean) => void;
  readonly onFailure: (error: unknown) => void;
}

/** Sends keys in order, each exactly once. Sends the first at once; keys typed meanwhile follow together. */
export class Keyboard {
  readonly #options: KeyboardOptions;
  readonly #send: () => void;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #offset = 0n;

  constructor(options: KeyboardOptions) {
    this.#options = options;
    this.#send = oneAtATime(() => this.#sendWaiting(), options.onFailure);
  }

  type(keys: Uint8Array): void {
    if (keys.length === 0) return;
    this.#waiting.push(keys);
    this.#waitingBytes += keys.length;
    if (this.#waitingBytes > MAX_WAITING_BYTES) this.#options.onRoom(false);
    this.#send();
  }

  async #sendWaiting(): Promise<void> {
    const keys = Buffer.concat(this.#waiting);
    this.#waiting = [];
    for (let at = 0; at < keys.length; ) {
      const piece = keys.subarray(at, at + MAX_AT_ONCE_BYTES);
      this.#offset = await this.#options.write(this.#offset, piece);
      at += piece.length;
      this.#waitingBytes -= piece.length;
    }
    if (this.#waitingBytes <= MAX_WAITING_BYTES) this.#options.onRoom(true);
  }
}

const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;
const TILDE = 0x7e;
const DOT = 0x2e;

/** The result of {@link EscapeFilter}. */
interface Filtered {
  /** The keys to pass on. */
  readonly keys: Buffer;
  /** Whether `~.` was typed. Keys after it are dropped. */
  readonly leave: boolean;
}

/**
 * Finds `~.` at the start of a line, which leaves a session that does not answer, as in ssh. `~~` there is one tilde.
 * Before any other key the tilde stays.
 */
export class EscapeFilter {
  #at: "line-start" | "tilde" | "line" = "line-start";

  /** Takes keys as they are typed. Holds back a tilde that may start an escape until the next key. */
  push(typed: Uint8Array): Filtered {
    const keys: number[] = [];
    for (const key of typed) {
      if (this.#at === "tilde") {
        if (key === DOT) return { keys: Buffer.from(keys), leave: true };
        keys.push(TILDE);
        this.#at = "line";
        if (key === TILDE) continue;
      } else if (this.#at === "line-start" && key === TILDE) {
        this.#at = "tilde";
        continue;
      }
      keys.push(key);
      this.#at = key === CARRIAGE_RETURN || key === LINE_FEED ? "line-start" : "line";
    }
    return { keys: Buffer.from(keys), leave: false };
  }
}

/**
 * Returns a function that runs `work`, or, if it is running, runs it once more afterwards, however often it was called
 * meanwhile.
 */
export function oneAtATime(work: () => Promise<void>, onFailure: (error: unknown) => void): () => void {
  let busy = false;
  let wanted = false;
  const run = async () => {
    busy = true;
    try {
      while (wanted) {
        wanted = false;
        await work();
      }
    } catch (error) {
      onFailure(error);
    } finally {
      busy = false;
    }
  };
  return () => {
    wanted = true;
    if (!busy) void run();
  };
}
