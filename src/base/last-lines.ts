/**
 * What a program writes to stderr, as latin1: the last of its lines, whole, within a bound. Lines that say nothing are
 * dropped as they come, so that many of them do not push out the one that counts.
 */
export class LastLines {
  readonly #maxLength: number;
  readonly #isNoise: (line: string) => boolean;
  #lines: string[] = [];
  #length = 0;
  /** The line that has not ended; of a long one, its end. */
  #open = "";

  constructor(maxLength: number, isNoise: (line: string) => boolean = () => false) {
    this.#maxLength = maxLength;
    this.#isNoise = isNoise;
  }

  add(chunk: Buffer): void {
    const [first = "", ...others] = chunk.toString("latin1").split("\n");
    this.#open = this.#cut(this.#open + first);
    for (const other of others) {
      this.#end();
      this.#open = this.#cut(other);
    }
  }

  /** At most twice the bound, and a line that has not ended. */
  get text(): string {
    return this.#lines.map((line) => `${line}\n`).join("") + this.#open;
  }

  #cut(line: string): string {
    return line.slice(-this.#maxLength);
  }

  #end(): void {
    if (this.#isNoise(this.#open)) return;
    // A copy: a part of a string keeps the whole chunk that it was cut from.
    this.#lines.push(Buffer.from(this.#open, "latin1").toString("latin1"));
    this.#length += this.#open.length + 1;
    // All at once: to take away one for each that comes would move the others each time.
    if (this.#length > 2 * this.#maxLength) this.#shorten();
  }

  #shorten(): void {
    const lengthOf = (index: number): number => (this.#lines[index]?.length ?? 0) + 1;
    let from = this.#lines.length - 1;
    let length = lengthOf(from);
    for (; from > 0 && length + lengthOf(from - 1) <= this.#maxLength; from--) length += lengthOf(from - 1);
    this.#lines = this.#lines.slice(from);
    this.#length = length;
  }
}
