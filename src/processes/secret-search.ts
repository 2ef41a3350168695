/** No node: the end of a list of children. */
const NONE = 0;
const ROOT = 0;

/**
 * Finds many texts in a stream at once, as Aho and Corasick do: the time grows with the stream, whatever the number of
 * texts. A state says how the stream goes on: the node of the longest end of it that begins a text.
 */
export class SecretSearch {
  /** The state at the beginning of a stream. */
  static readonly START = ROOT;
  readonly #texts: readonly Buffer[];
  /** Of the root by byte; of every other node as a list: most have a single child. */
  readonly #rootChildren = new Uint32Array(256);
  readonly #child: Uint32Array;
  readonly #sibling: Uint32Array;
  readonly #byte: Uint8Array;
  /** The node of the longest end of a node's text that begins a text too. */
  readonly #fallback: Uint32Array;
  readonly #depth: Uint32Array;
  /** Length of the longest text that a node's text ends with; 0 without one. */
  readonly #found: Uint32Array;
  /** A text that begins with a node's text. */
  readonly #text: Uint32Array;
  /** The byte that begins every text; undefined where they differ. */
  readonly #firstByte: number | undefined;

  /** @param texts none of them empty */
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
    this.#plant();
    this.#link();
  }

  /** Reads a chunk in a state; calls back with each place behind a text that ends in it, and the longest such text's length. */
  read(chunk: Buffer, state: number, found: (end: number, length: number) => void): number {
    let node = state;
    for (let at = 0; at < chunk.length; at++) {
      if (node === ROOT && this.#firstByte !== undefined) {
        // Most of what commands write is not a secret.
        at = chunk.indexOf(this.#firstByte, at);
        if (at === -1) break;
      }
      node = this.#next(node, chunk[at] ?? 0);
      const length = this.#found[node] ?? 0;
      if (length === 0) continue;
      found(at + 1, length);
      // A text that no other begins with is not held back.
      while (node !== ROOT && this.#child[node] === NONE) node = this.#fallback[node] ?? ROOT;
    }
    return node;
  }

  /** What the end of the stream and the beginning of a text have in common. */
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

  /** Makes the nodes. */
  #plant(): void {
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

  /** Sets the fallbacks, the nodes nearest to the root first: each needs those above it. */
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
