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
 * Searches for one text with the algorithm of Knuth, Morris and Pratt, which reads each byte of the stream only once.
 */
class Search {
  readonly text: Buffer;
  readonly #fallbacks: Uint32Array;
  /** How many of the text's first bytes match the last bytes of the stream. */
  matched = 0;

  constructor(text: Buffer) {
    this.text = text;
    this.#fallbacks = new Uint32Array(text.length + 1);
    for (let at = 1, length = 0; at < text.length; at++) {
      while (length > 0 && text[at] !== text[length]) length = this.#fallbacks[length] ?? 0;
      if (text[at] === text[length]) length++;
      this.#fallbacks[at + 1] = length;
    }
  }

  /** Reads a chunk; calls back with the position after each occurrence that ends in it. */
  read(chunk: Buffer, found: (end: number) => void): void {
    const { text } = this;
    const first = text[0] ?? 0;
    let { matched } = this;
    for (let at = 0; at < chunk.length; at++) {
      if (matched === 0) {
        // Most output contains no secret, so skip to the next possible start.
        at = chunk.indexOf(first, at);
        if (at === -1) break;
      }
      const byte = chunk[at];
      while (matched > 0 && byte !== text[matched]) matched = this.#fallbacks[matched] ?? 0;
      if (byte === text[matched]) matched++;
      if (matched < text.length) continue;
      found(at + 1);
      matched = this.#fallbacks[matched] ?? 0;
    }
    this.matched = matched;
  }
}

/**
 * Replaces secrets in a stream, regardless of how it is split into chunks. All other bytes pass unchanged. Overlapping
 * secrets become one mark. The last bytes are held back while they may be the start of a secret. Holds at most the
 * length of the longest secret; the time is proportional to the length of the stream times the number of secrets.
 */
export class Redactor {
  readonly #searches: readonly Search[];
  /** Secrets that were found and not completely passed yet, in order, without overlaps. */
  #spans: Span[] = [];
  /** Bytes of the stream received, and bytes passed on or redacted. */
  #read = 0;
  #done = 0;

  /** @param secrets must not contain empty ones */
  constructor(secrets: readonly Buffer[]) {
    this.#searches = secrets.map((secret) => new Search(secret));
  }

  /** Takes the next bytes; returns the bytes to pass on. */
  push(chunk: Buffer): Buffer {
    const held = this.#held();
    const start = this.#read;
    const ends: { readonly from: number; readonly to: number }[] = [];
    for (const search of this.#searches) {
      search.read(chunk, (end) => ends.push({ from: start + end - search.text.length, to: start + end }));
    }
    if (this.#searches.length > 1) ends.sort((one, other) => one.to - other.to);
    for (const { from, to } of ends) this.#cover(from, to);
    this.#read += chunk.length;
    const longest = Math.max(0, ...this.#searches.map(({ matched }) => matched));
    return this.#pass(held, chunk, this.#read - longest);
  }

  /** Ends the stream; returns the bytes that were held back. */
  end(): Buffer {
    return this.#pass(this.#held(), Buffer.alloc(0), this.#read);
  }

  /** Bytes received and not passed on: the start of the longest partial match. */
  #held(): Buffer {
    const length = this.#read - this.#done;
    const best = this.#searches.find(({ matched }) => matched === length);
    return best?.text.subarray(0, length) ?? Buffer.alloc(0);
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
