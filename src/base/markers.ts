import { takeRandom } from "./random.ts";

const NOTHING = Buffer.alloc(0);
const SEMICOLON = 0x3b;
/** The text of a marker is a short word. A longer text before the `;` is not a marker. */
const MAX_TEXT = 32;

/** A marker in a stream. */
export interface Found {
  /** The text between the nonce and the `;`. */
  readonly text: string;
  /** What came after the marker. */
  readonly rest: Buffer;
}

/**
 * Finds one marker, `<nonce><text>;`, in a stream of bytes, and passes on everything before it unchanged. It holds back
 * only a suffix that could start the marker, and only until the next chunk. The nonce is random and unknown to the job,
 * so no output of a job can be mistaken for it.
 */
export class MarkerScanner {
  readonly #nonce: Buffer;
  readonly #onData: (chunk: Buffer) => void;
  #held: Buffer = NOTHING;

  /** @param nonce as text, or its bytes if several scanners look for it. */
  constructor(nonce: string | Buffer, onData: (chunk: Buffer) => void) {
    this.#nonce = typeof nonce === "string" ? Buffer.from(nonce, "latin1") : nonce;
    this.#onData = onData;
  }

  /** Takes the next chunk. Returns the marker once it is complete; do not push again after that. */
  push(chunk: Buffer): Found | undefined {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = NOTHING;
    const at = bytes.indexOf(this.#nonce);
    if (at < 0) {
      this.#hold(bytes, bytes.length - this.#suffixThatMayBegin(bytes));
      return undefined;
    }
    const textAt = at + this.#nonce.length;
    const endAt = bytes.indexOf(SEMICOLON, textAt);
    if (endAt < 0 && bytes.length - textAt <= MAX_TEXT) {
      this.#hold(bytes, at);
      return undefined;
    }
    if (at > 0) this.#onData(bytes.subarray(0, at));
    const end = endAt < 0 ? bytes.length : endAt;
    return { text: bytes.toString("latin1", textAt, end), rest: bytes.subarray(end + 1) };
  }

  /** Whether bytes are held back. */
  get holds(): boolean {
    return this.#held.length > 0;
  }

  /** Passes on what was held back. Call it when no marker can come any more. */
  flush(): void {
    if (this.#held.length > 0) this.#onData(this.#held);
    this.#held = NOTHING;
  }

  /** Passes on everything before `at` and keeps the rest. */
  #hold(bytes: Buffer, at: number): void {
    if (at > 0) this.#onData(bytes.subarray(0, at));
    // Copy them, so that a few held bytes do not keep a whole chunk in memory.
    if (at < bytes.length) this.#held = Buffer.from(bytes.subarray(at));
  }

  #suffixThatMayBegin(bytes: Buffer): number {
    let length = Math.min(this.#nonce.length - 1, bytes.length);
    // Search for the first byte, because this runs for every chunk of output.
    for (; length > 0; length--) {
      const at = bytes.indexOf(this.#nonce[0] ?? 0, bytes.length - length);
      if (at < 0) return 0;
      length = bytes.length - at;
      if (bytes.compare(this.#nonce, 0, length, at) === 0) return length;
    }
    return 0;
  }
}

/**
 * A nonce for markers in a job's output. Its first byte does not occur in text, so the end of a text, such as a prompt
 * that waits for an answer, is never held back as the possible start of a marker.
 */
export function newMarkerNonce(): string {
  return `\x1e${newNonce()}`;
}

/** A word that cannot be guessed: 128 random bits as 32 hexadecimal digits. */
export function newNonce(): string {
  return takeRandom(16).toString("hex");
}
