import { SecretSearch } from "./secret-search.ts";

/** Replaces a secret in the output of a command. */
const MARK = Buffer.from("[redacted]");

/** Bytes to redact, as absolute positions in the stream. */
interface Span {
  readonly from: number;
  to: number;
  /** Whether its mark has already been written, though its last bytes are still held back. */
  isMarked: boolean;
}

/**
 * Replaces secrets in a stream, regardless of how it is split into chunks. All other bytes pass unchanged. Overlapping
 * secrets become one mark. The last bytes are held back while they may be the start of a secret. Holds at most the
 * length of the longest secret; the time is proportional to the length of the stream, whatever the number of secrets.
 */
export class Redactor {
  readonly #search: SecretSearch;
  #state = SecretSearch.START;
  /** Secrets that were found and not completely passed yet, in order, without overlaps. */
  #spans: Span[] = [];
  /** Bytes of the stream received, and bytes passed on or redacted. */
  #read = 0;
  #done = 0;

  constructor(search: SecretSearch) {
    this.#search = search;
  }

  /** Takes the next bytes; returns the bytes to pass on. */
  push(chunk: Buffer): Buffer {
    const held = this.#search.pending(this.#state);
    const start = this.#read;
    this.#state = this.#search.read(chunk, this.#state, (end, length) =>
      this.#cover(start + end - length, start + end),
    );
    this.#read += chunk.length;
    return this.#pass(held, chunk, this.#read - this.#search.pending(this.#state).length);
  }

  /** Ends the stream; returns the bytes that were held back. */
  end(): Buffer {
    return this.#pass(this.#search.pending(this.#state), Buffer.alloc(0), this.#read);
  }

  /** Adds a span. It must end at or after all others. */
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
      // A span that reaches the end may still grow.
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
