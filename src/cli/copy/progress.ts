import { formatDuration, formatSize } from "../format.ts";
import type { Io } from "../io.ts";
import { ProgressLine } from "../progress-line.ts";
import type { Chunks } from "./local-file.ts";

const FIRST_AFTER_MS = 500;
const REDRAW_MS = 200;

/** Shows the progress of a copy on a terminal if it takes a while. */
export class CopyProgress {
  /** Undefined: nothing is shown. */
  readonly #line: ProgressLine | undefined;
  readonly #now: () => number;
  readonly #startMs: number;
  #drawnMs: number | undefined;
  #bytes = 0;

  /** @param now the current time in milliseconds */
  constructor(io: Io, now: () => number = () => performance.now()) {
    this.#line = ProgressLine.on(io);
    this.#now = now;
    this.#startMs = now();
  }

  /** Passes chunks on and counts them. `total`: the number of bytes, if known. */
  async *count(chunks: Chunks, total?: number): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      this.#bytes += chunk.length;
      this.#draw(total);
      yield chunk;
    }
  }

  /** Clears the progress line. */
  end(): void {
    this.#line?.clear();
  }

  #draw(total: number | undefined): void {
    const now = this.#now();
    const due = this.#drawnMs === undefined ? this.#startMs + FIRST_AFTER_MS : this.#drawnMs + REDRAW_MS;
    if (now < due) return;
    this.#drawnMs = now;
    this.#line?.draw(formatProgress(this.#bytes, total, now - this.#startMs));
  }
}

/**
 * Formats the progress of a copy: `copied 12 MiB of 48 MiB (25%), 4 MiB/s, 9s left`.
 * @param elapsedMs the time so far, more than 0
 */
export function formatProgress(bytes: number, total: number | undefined, elapsedMs: number): string {
  const rate = bytes / (elapsedMs / 1000);
  const done = `copied ${formatSize(bytes)}`;
  const speed = `${formatSize(Math.round(rate))}/s`;
  // A file may grow meanwhile: then omit the percentage.
  if (total === undefined || bytes > total) return `${done}, ${speed}`;
  const percent = Math.floor((bytes / total) * 100);
  const left = rate > 0 ? `, ${formatDuration(Math.ceil((total - bytes) / rate) * 1000)} left` : "";
  return `${done} of ${formatSize(total)} (${percent}%), ${speed}${bytes === total ? "" : left}`;
}
