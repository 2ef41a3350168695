import { SecretSearch } from "./secret-search.ts";

/** What stands for a secret in what a command writes. */
const MARK = Buffer.from("[redacted]");

/** Bytes to be covered, as absolute places in the stream. */
interface Span {
  readonly from: number;
  to: number;
  /** Whether its mark is out already, because what came before had to be known no longer. */
  isMarked: boolean;
}

/**
 * Replaces secrets in a stream, wherever its chunks are divided; all else
 * passes byte by byte. Secrets that overlap become one mark. The end of what has
 * come is held back while it may be the beginning of a secret. It holds no more
 * than the longest secret, and takes time that grows with the stream, whatever the number of secrets.
 */
export class Redactor {
  readonly #search: SecretSearch;
  #state = SecretSearch.START;
  /** Found, not passed in whole yet, in their order; they do not overlap. */
  #spans: Span[] = [];
  /** Bytes of the stream that have come, and that have been passed on or covered. */
  #read = 0;
  #done = 0;

  constructor(search: SecretSearch) {
    this.#search = search;
  }

  /** Takes the next bytes; returns what may go on. */
  push(chunk: Buffer): Buffer {
    const held = this.#search.pending(this.#state);
    const start = this.#read;
    this.#state = this.#search.read(chunk, this.#state, (end, length) =>
      this.#cover(start + end - length, start + end),
    );
    this.#read += chunk.length;
    return this.#pass(held, chunk, this.#read - this.#search.pending(this.#state).length);
  }

  /** Returns what was held back at the end of the stream. */
  end(): Buffer {
    return this.#pass(this.#search.pending(this.#state), Buffer.alloc(0), this.#read);
  }

  /** Adds a span that ends at or after all others. */
  #cover(from: number, to: number): void {
    let start = from;
    let isMarked = false;
    for (let last = this.#spans.at(-1); last !== undefined && last.to > start; last = this.#spans.at(-1)) {
      this.#spans.pop();
      start = Math.min(start, last.from);
      isMarked ||= last.isMarked;
    }
    this.#spans.push({ from: start, to, isMarked });
  }

  #pass(held: Buffer, chunk: Buffer, until: number): Buffer {
    const base = this.#read - chunk.length;
    const parts: Buffer[] = [];
    const copy = (from: number, to: number): void => {
      if (from < Math.min(to, base)) {
        const start = base - held.length;
        parts.push(held.subarray(from - start, Math.min(to, base) - start));
      }
      if (to > base) parts.push(chunk.subarray(Math.max(from, base) - base, to - base));
    };
    let passed = 0;
    for (const span of this.#spans) {
      if (span.from >= until) break;
      if (this.#done < span.from) copy(this.#done, span.from);
      if (!span.isMarked) parts.push(MARK);
      span.isMarked = true;
      this.#done = Math.max(this.#done, Math.min(span.to, until));
      // One that reaches to the end may still grow with what comes.
      if (span.to > until) break;
      passed++;
    }
    if (passed > 0) this.#spans.splice(0, passed);
    const isInSpan = (this.#spans[0]?.from ?? until) < until;
    if (!isInSpan && this.#done < until) {
      copy(this.#done, until);
      this.#done = until;
    }
    return parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
  }
}
