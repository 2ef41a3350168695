/**
 * Collects a program's stderr, as latin1: its last complete lines, up to a limit. Irrelevant lines are dropped as they
 * arrive, so that they do not push out the relevant one.
 */
export class LastLines {
  readonly #maxLength: number;
  readonly #isNoise: (line: string) => boolean;
  #lines: string[] = [];
  #length = 0;
  /** The last line, which has not ended. Only the end of it, if it is long. */
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

  /** The collected lines, at most twice the limit, and the last line, which has not ended. */
  get text(): string {
    return this.#lines.map((line) => `${line}\n`).join("") + this.#open;
  }

  #cut(line: string): string {
    return line.slice(-this.#maxLength);
  }

  #end(): void {
    if (this.#isNoise(this.#open)) return;
    // Copy the line: a substring keeps the whole chunk in memory.
    this.#lines.push(Buffer.from(this.#open, "latin1").toString("latin1"));
    this.#length += this.#open.length + 1;
    // Drop lines in batches: dropping one for each new line would move all others each time.
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
