import type { Readable } from "node:stream";

const TURN_MS = 250;
/** Streams that have a turn at the same time; others wait for the next. */
const STREAMS_A_TURN = 32;

/**
 * Reads streams that nobody listens to, and slowly: those who write to them are
 * neither ended nor stopped, and cost the service next to nothing, however much
 * they write. A stream brings 256 KiB/s or a little more, all together some
 * 10 MiB/s. One that brings nothing takes no turn.
 */
export class SlowDrain {
  /** Those that have had their turn, in order. */
  readonly #waiting = new Set<Readable>();
  readonly #turnMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** @param turnMs between two turns of a stream; the rates above are those of the default. */
  constructor(turnMs = TURN_MS) {
    this.#turnMs = turnMs;
  }

  /** Begins to read a stream, until the returned function is called, which leaves it paused or flowing. */
  start(stream: Readable): () => void {
    const onData = (): void => {
      stream.pause();
      this.#waiting.add(stream);
      this.#timer ??= setInterval(() => this.#turn(), this.#turnMs).unref();
    };
    stream.on("data", onData).resume();
    return () => {
      stream.off("data", onData);
      this.#waiting.delete(stream);
    };
  }

  #turn(): void {
    let turns = 0;
    for (const stream of this.#waiting) {
      if (turns++ === STREAMS_A_TURN) return;
      this.#waiting.delete(stream);
      stream.resume();
    }
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
