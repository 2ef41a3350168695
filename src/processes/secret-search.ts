/** Marks the end of a list of children. The root is nobody's child, so it can share the number. */
const NONE = 0;
const ROOT = 0;

/**
 * Searches a stream for many texts at once with the algorithm of Aho and Corasick: the time depends on the length of the
 * stream, not on the number of texts. The state between two chunks is a node of the tree of all texts: the longest
 * suffix of the stream that is a prefix of a text.
 */
export class SecretSearch {
  /** The state at the start of a stream. */
  static readonly START = ROOT;
  readonly #texts: readonly Buffer[];
  /** Children of the root, by byte. Other nodes have a linked list of children, as most have only one. */
  readonly #rootChildren = new Uint32Array(256);
  readonly #child: Uint32Array;
  readonly #sibling: Uint32Array;
  readonly #byte: Uint8Array;
  /** By node: the node of its longest proper suffix that is also in the tree. */
  readonly #fallback: Uint32Array;
  readonly #depth: Uint32Array;
  /** By node: length of the longest text that is a suffix of it; 0 if none is. */
  readonly #found: Uint32Array;
  /** By node: index of a text that it is a prefix of. */
  readonly #text: Uint32Array;
  /** The first byte of all texts; undefined if they differ. */
  readonly #firstByte: number | undefined;

  /** @param texts must not contain empty ones */
  constructor(texts: readonly Buffer[]) {
    const nodes = 1 + texts.reduce((sum, { length }) => sum + length, 0);
    this.#texts = texts;
    this.#child = new Uint32Array(nodes);
    this.#sibling = new Uint32Array(nodes);
    this.#byte = new Uint8Array(nodes);
    this.#fallback = new Uint32Array(nodes);
    this.#depth = new Uint32Array(nodes);
    this.#found = new Uint32Array(nodes);
    this.#text = new Uint32Array(nodes);
    const firstBytes = new Set(texts.map(([first]) => first));
    this.#firstByte = firstBytes.size === 1 ? [...firstBytes][0] : undefined;
    this.#build();
    this.#link();
  }

  /**
   * Reads a chunk and returns the new state. Calls back with each position after the end of a text, and the length of
   * the longest text that ends there.
   */
  read(chunk: Buffer, state: number, found: (end: number, length: number) => void): number {
    let node = state;
    for (let at = 0; at < chunk.length; at++) {
      if (node === ROOT && this.#firstByte !== undefined) {
        // Most output contains no secret, so skip to the next possible start.
        at = chunk.indexOf(this.#firstByte, at);
        if (at === -1) break;
      }
      node = this.#next(node, chunk[at] ?? 0);
      const length = this.#found[node] ?? 0;
      if (length === 0) continue;
      found(at + 1, length);
      // A complete text is not held back unless it is the start of a longer one.
      while (node !== ROOT && this.#child[node] === NONE) node = this.#fallback[node] ?? ROOT;
    }
    return node;
  }

  /** The end of the stream that may be the start of a text. */
  pending(state: number): Buffer {
    return this.#texts[this.#text[state] ?? 0]?.subarray(0, this.#depth[state]) ?? Buffer.alloc(0);
  }

  #next(from: number, byte: number): number {
    for (let node = from; node !== ROOT; node = this.#fallback[node] ?? ROOT) {
      const child = this.#childOf(node, byte);
      if (child !== NONE) return child;
    }
    return this.#rootChildren[byte] ?? NONE;
  }

  #childOf(node: number, byte: number): number {
    if (node === ROOT) return this.#rootChildren[byte] ?? NONE;
    let child = this.#child[node] ?? NONE;
    while (child !== NONE && this.#byte[child] !== byte) child = this.#sibling[child] ?? NONE;
    return child;
  }

  /** Builds the tree. */
  #build(): void {
    let nodes = 1;
    for (const [index, text] of this.#texts.entries()) {
      let node = ROOT;
      for (const byte of text) {
        let child = this.#childOf(node, byte);
        if (child === NONE) {
          child = nodes++;
          this.#byte[child] = byte;
          this.#depth[child] = (this.#depth[node] ?? 0) + 1;
          this.#text[child] = index;
          if (node === ROOT) this.#rootChildren[byte] = child;
          else {
            this.#sibling[child] = this.#child[node] ?? NONE;
            this.#child[node] = child;
          }
        }
        node = child;
      }
      this.#found[node] = text.length;
    }
  }

  /** Sets the fallbacks level by level, as each depends on those of shorter nodes. */
  #link(): void {
    const level = [...this.#rootChildren].filter((child) => child !== NONE);
    for (const node of level) {
      for (let child = this.#child[node] ?? NONE; child !== NONE; child = this.#sibling[child] ?? NONE) {
        const fallback = this.#next(this.#fallback[node] ?? ROOT, this.#byte[child] ?? 0);
        this.#fallback[child] = fallback;
        this.#found[child] ||= this.#found[fallback] ?? 0;
        level.push(child);
      }
    }
  }
}
