import { TurnShare } from "../base/turn-share.ts";

const ROOT = 0;
/** Returned instead of a child. The root is nobody's child, so it can share the number. */
const NONE = 0;
/** Marks a node that continues the one before it: the lower eight bits are the byte between the two. */
const CONTINUES = 0x100;
/** Marks a node that other chains continue. */
const BRANCHES = 0x200;

/** The share of the event loop for building searches: megabytes of texts take a tenth of a second. */
const turns = new TurnShare();
/** How many nodes are linked before others get their turn. */
const LINKED_AT_ONCE = 4_096;

/** The nodes of a text beyond those that it shares with earlier texts. They are numbered in sequence. */
interface Chain {
  readonly text: Buffer;
  readonly first: number;
  /** The node that the first one continues, and its depth. */
  readonly parent: number;
  readonly depth: number;
}

/**
 * Searches a stream for many texts at once with the algorithm of Aho and Corasick: the time depends on the length of the
 * stream, not on the number of texts. The state between two chunks is a node of the tree of all texts: the longest
 * suffix of the stream that is a prefix of a text. Takes 10 bytes of memory for each byte of the texts, because most
 * nodes have one child, which is the next node.
 */
export class SecretSearch {
  /** The state at the start of a stream. */
  static readonly START = ROOT;
  readonly #chains: Chain[] = [];
  /** Children of the root, by byte. */
  readonly #rootChildren = new Uint32Array(256);
  /** By node: {@link CONTINUES} with a byte, {@link BRANCHES}. */
  readonly #links: Uint16Array;
  /** First nodes of chains, by {@link branchKey}. */
  readonly #branches = new Map<number, number>();
  /** By node: the node of its longest proper suffix that is also in the tree. */
  readonly #fallback: Uint32Array;
  /** By node: length of the longest text that is a suffix of it; 0 if none is. */
  readonly #found: Uint32Array;
  /** The first byte of all texts; undefined if they differ. */
  readonly #firstByte: number | undefined;

  private constructor(texts: readonly Buffer[]) {
    // One more, so that every node has a next one.
    const nodes = 2 + texts.reduce((sum, { length }) => sum + length, 0);
    this.#links = new Uint16Array(nodes);
    this.#fallback = new Uint32Array(nodes);
    this.#found = new Uint32Array(nodes);
    const firstBytes = new Set(texts.map(([first]) => first));
    this.#firstByte = firstBytes.size === 1 ? [...firstBytes][0] : undefined;
  }

  /** @param texts must not contain empty ones */
  static async of(texts: readonly Buffer[]): Promise<SecretSearch> {
    const search = new SecretSearch(texts);
    let next = ROOT + 1;
    for (const text of texts) {
      await turns.enter();
      next = search.#add(text, next);
    }
    await search.#link();
    return search;
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
      while (node !== ROOT && !this.#hasChildren(node)) node = this.#fallback[node] ?? ROOT;
    }
    return node;
  }

  /** The end of the stream that may be the start of a text. */
  pending(state: number): Buffer {
    const chain = state === ROOT ? undefined : this.#chains.findLast(({ first }) => first <= state);
    return chain?.text.subarray(0, chain.depth + 1 + state - chain.first) ?? Buffer.alloc(0);
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
    if (((this.#links[node + 1] ?? 0) & ~BRANCHES) === (CONTINUES | byte)) return node + 1;
    const branches = ((this.#links[node] ?? 0) & BRANCHES) !== 0;
    return (branches ? this.#branches.get(branchKey(node, byte)) : undefined) ?? NONE;
  }

  #hasChildren(node: number): boolean {
    return ((this.#links[node] ?? 0) & BRANCHES) !== 0 || ((this.#links[node + 1] ?? 0) & CONTINUES) !== 0;
  }

  /** Adds a text to the tree. @param first the next free node @returns the next free node after it */
  #add(text: Buffer, first: number): number {
    let parent = ROOT;
    let depth = 0;
    for (; depth < text.length; depth++) {
      const child = this.#childOf(parent, text[depth] ?? 0);
      if (child === NONE) break;
      parent = child;
    }
    const next = first + text.length - depth;
    if (next > first) {
      this.#chains.push({ text, first, parent, depth });
      const byte = text[depth] ?? 0;
      if (parent === ROOT) this.#rootChildren[byte] = first;
      else {
        this.#links[parent] = (this.#links[parent] ?? 0) | BRANCHES;
        this.#branches.set(branchKey(parent, byte), first);
      }
      for (let node = first + 1; node < next; node++)
        this.#links[node] = CONTINUES | (text[depth + node - first] ?? 0);
    }
    this.#found[next > first ? next - 1 : parent] = text.length;
    return next;
  }

  /** Sets the fallbacks level by level, as each depends on those of shorter nodes. */
  async #link(): Promise<void> {
    let chains: readonly Chain[] = this.#chains;
    let linked = 0;
    for (let depth = 0; chains.length > 0; depth++) {
      if (linked >= LINKED_AT_ONCE) {
        await turns.enter();
        linked = 0;
      }
      linked += chains.length;
      let ended = false;
      for (const chain of chains) {
        const at = depth - chain.depth;
        // A node of the first level falls back to the root.
        if (at >= 0 && depth > 0)
          this.#linkNode(
            chain.first + at,
            at === 0 ? chain.parent : chain.first + at - 1,
            chain.text[depth] ?? 0,
          );
        if (depth + 1 === chain.text.length) ended = true;
      }
      const length = depth + 1;
      if (ended) chains = chains.filter(({ text }) => text.length > length);
    }
  }

  #linkNode(node: number, parent: number, byte: number): void {
    const fallback = this.#next(this.#fallback[parent] ?? ROOT, byte);
    this.#fallback[node] = fallback;
    this.#found[node] ||= this.#found[fallback] ?? 0;
  }
}

function branchKey(node: number, byte: number): number {
  return node * 256 + byte;
}
