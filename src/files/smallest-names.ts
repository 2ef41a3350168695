import type { ByteString } from "./byte-string.ts";
import { strangeAnswer } from "./file-info.ts";

/** From so many times the wanted number of names on, the surplus is dropped. */
const SLACK = 4;
/** A path of `find .` is far shorter. */
const MOST_PATH_BYTES = 4096;

/**
 * Takes the output of `find . -print0` as it comes and keeps the names that
 * come first in byte order after a given one, so that memory does not grow with
 * the directory.
 */
export class SmallestNames {
  readonly #after: ByteString | undefined;
  readonly #count: number;
  #names: ByteString[] = [];
  /** Begin of a name whose end has not come yet. */
  #rest = "";
  /** The largest name that still belongs here, once there are enough. */
  #limit: ByteString | undefined;

  /** @param count how many to keep */
  constructor(after: ByteString | undefined, count: number) {
    this.#after = after;
    this.#count = count;
  }

  /** Takes the next piece of output. @throws `UNSUPPORTED` for what is no name. */
  push(text: ByteString): void {
    const paths = (this.#rest + text).split("\0");
    this.#rest = paths.pop() ?? "";
    if (this.#rest.length > MOST_PATH_BYTES) throw strangeAnswer("find");
    for (const path of paths) {
      const name = path.slice("./".length);
      if (this.#after !== undefined && name <= this.#after) continue;
      if (this.#limit !== undefined && name >= this.#limit) continue;
      this.#names.push(name);
    }
    if (this.#names.length >= this.#count * SLACK) this.#trim();
  }

  /** The names, in order. */
  take(): ByteString[] {
    this.#trim();
    return this.#names;
  }

  #trim(): void {
    this.#names = this.#names.sort().slice(0, this.#count);
    if (this.#names.length === this.#count) this.#limit = this.#names.at(-1);
  }
}
