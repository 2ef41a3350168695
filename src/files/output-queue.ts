/** What holds back, and lets go on, where bytes come from. */
export interface Flow {
  pause(): void;
  resume(): void;
}

/** More than this waiting holds the source back; it goes on at half of it. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Bytes handed on at once; less is fewer copies, more is fewer messages. */
const MAX_AT_ONCE = 256 * 1024;

/** Bytes on their way from a job to the one who reads them at their own speed. */
export class OutputQueue {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #paused = false;
  #flow: Flow | undefined;
  #over: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  /** Says where the bytes come from, which is known only after the first may have come. */
  attach(flow: Flow): void {
    this.#flow = flow;
    if (this.#paused) flow.pause();
  }

  push(chunk: Buffer): void {
    if (this.#over !== undefined || chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    this.#balance();
    this.#wake?.();
  }

  /** Nothing more will come; with an error, what waits is dropped too. The first end stays. */
  end(error?: unknown): void {
    if (this.#over !== undefined) return;
    this.#over = { error };
    if (error !== undefined) {
      this.#chunks = [];
      this.#bytes = 0;
    }
    this.#balance();
    this.#wake?.();
  }

  /** The next bytes; undefined at the end. One reader only. */
  async next(): Promise<Buffer | undefined> {
    while (this.#chunks.length === 0) {
      if (this.#over?.error !== undefined) throw this.#over.error;
      if (this.#over !== undefined) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    let count = 0;
    let bytes = 0;
    for (const chunk of this.#chunks) {
      if (count > 0 && bytes + chunk.length > MAX_AT_ONCE) break;
      bytes += chunk.length;
      count++;
    }
    const taken = this.#chunks.splice(0, count);
    this.#bytes -= bytes;
    this.#balance();
    const [first] = taken;
    return taken.length === 1 ? first : Buffer.concat(taken, bytes);
  }

  #balance(): void {
    const wait =
      this.#over === undefined && this.#bytes > (this.#paused ? MAX_QUEUED_BYTES / 2 : MAX_QUEUED_BYTES);
    if (wait === this.#paused) return;
    this.#paused = wait;
    if (wait) this.#flow?.pause();
    else this.#flow?.resume();
  }
}
