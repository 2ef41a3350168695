import { oneAtATime } from "./one-at-a-time.ts";

/** Of what is typed or pasted, this much may wait to be sent. */
const MAX_WAITING_BYTES = 1024 * 1024;
const MAX_AT_ONCE_BYTES = 256 * 1024;

/** Where keys go. */
export interface KeyboardOptions {
  /** Writes bytes at an offset; resolves with the offset of the next ones. */
  readonly write: (offset: bigint, data: Uint8Array) => Promise<bigint>;
  /** Says whether there is room for more. */
  readonly onRoom: (room: boolean) => void;
  readonly onFailure: (error: unknown) => void;
}

/**
 * Sends keys in order, each once. The first goes at once; those that are typed
 * while it is on its way go together after it.
 */
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
