import { formatSize } from "../format.ts";
import type { Io } from "../io.ts";
import type { Chunks } from "./local-file.ts";

const FIRST_AFTER_MS = 500;
const REDRAW_MS = 200;

/** Shows the progress of a copy at a terminal, once it takes a while. */
export class CopyProgress {
  readonly #io: Io;
  readonly #startMs = performance.now();
  #drawnMs = 0;
  #bytes = 0;

  constructor(io: Io) {
    this.#io = io;
  }

  /** Passes chunks on and counts them. `total` is how many bytes there are, where that is known. */
  async *count(chunks: Chunks, total?: number): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      this.#bytes += chunk.length;
      this.#draw(total);
      yield chunk;
    }
  }

  /** Leaves the screen clean. */
  end(): void {
    if (this.#drawnMs > 0) this.#io.stderr.write("\r\x1b[K");
  }

  #draw(total: number | undefined): void {
    const now = performance.now();
    const due = this.#drawnMs === 0 ? this.#startMs + FIRST_AFTER_MS : this.#drawnMs + REDRAW_MS;
    if (!this.#io.stderr.isTTY || now < due) return;
    this.#drawnMs = now;
    const of = total === undefined ? "" : ` of ${formatSize(total)}`;
    this.#io.stderr.write(`\r\x1b[Kcopied ${formatSize(this.#bytes)}${of}`);
  }
}
