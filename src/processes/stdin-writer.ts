import { untilAborted } from "../base/async.ts";
import { abortError, BerthError, throwIfAborted } from "../base/errors.ts";
import type { Job } from "./shell/job.ts";

/** Handed to the job at once. This much of a write that was given up may still be on its way. */
const PIECE_BYTES = 256 * 1024;

/** Whether the job has room for more. */
type Room =
  | { readonly state: "free" }
  /** `wake` of the waiting writer is called when there is room again, or never will be. */
  | { readonly state: "full"; wake: (() => void) | undefined }
  | { readonly state: "failed"; readonly error: unknown };

/** Writes a job's stdin in order, each byte once. */
export class StdinWriter {
  readonly #job: Job;
  /** Writes that wait, in order: one runs at a time, so that the next knows how far it got. */
  readonly #waiting = new Set<() => void>();
  #writing = false;
  #room: Room = { state: "free" };
  /** Bytes handed to the job. */
  #taken = 0;
  #closed = false;

  constructor(job: Job) {
    this.#job = job;
  }

  /**
   * Writes `data`, which starts at `offset` in stdin; bytes taken before are
   * skipped. Resolves with the offset of the next write once the job has room for
   * more. A write that is given up has handed over a part of its data or none: the
   * same write again continues from there.
   * @throws `OFFSET_OUT_OF_RANGE` when bytes before `offset` are missing, `PROCESS_STATE` when stdin is closed;
   *   what the signal is aborted with.
   */
  async write(offset: number, data: Uint8Array, close: boolean, signal: AbortSignal): Promise<number> {
    await this.#turn(signal);
    try {
      if (offset > this.#taken) {
        throw new BerthError(
          "OFFSET_OUT_OF_RANGE",
          `offset: ${offset} leaves a hole: ${this.#taken} bytes were written so far. Write from there.`,
          { metadata: { field: "offset", written: String(this.#taken) } },
        );
      }
      const fresh = data.subarray(this.#taken - offset);
      if (fresh.length > 0 && this.#closed) {
        throw new BerthError("PROCESS_STATE", "The stdin of the process is closed.");
      }
      for (let at = 0; at < fresh.length; at += PIECE_BYTES) {
        const piece = fresh.subarray(at, at + PIECE_BYTES);
        // A part on its way must not keep the whole in memory.
        await this.#hand(fresh.length > PIECE_BYTES ? Buffer.from(piece) : piece, signal);
      }
      if (close && !this.#closed) {
        this.#closed = true;
        this.#job.closeStdin();
      }
      return this.#taken;
    } finally {
      this.#endTurn();
    }
  }

  /** Hands over a piece, once there is room, and waits for room again. */
  async #hand(piece: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#untilRoom(signal);
    this.#send(piece);
    this.#taken += piece.length;
    try {
      await this.#untilRoom(signal);
    } catch (error) {
      // Whether the job got it is not known: a retry must fail as this did.
      if (!signal.aborted) this.#taken -= piece.length;
      throw error;
    }
  }

  #send(piece: Uint8Array): void {
    const full: Room = { state: "full", wake: undefined };
    this.#room = full;
    const settle = (room: Room): void => {
      this.#room = room;
      full.wake?.();
    };
    this.#job.writeStdin(piece).then(
      () => settle({ state: "free" }),
      (error: unknown) => settle({ state: "failed", error }),
    );
  }

  /** Each wait has a promise of its own: a shared one would keep everything that abandoned waits refer to. */
  async #untilRoom(signal: AbortSignal): Promise<void> {
    throwIfAborted(signal);
    const room = this.#room;
    if (room.state === "full") {
      const changed = Promise.withResolvers<void>();
      room.wake = changed.resolve;
      try {
        await untilAborted(changed.promise, signal);
      } finally {
        room.wake = undefined;
      }
    }
    if (this.#room.state === "failed") throw this.#room.error;
  }

  async #turn(signal: AbortSignal): Promise<void> {
    throwIfAborted(signal);
    if (!this.#writing) {
      this.#writing = true;
      return;
    }
    const turn = Promise.withResolvers<void>();
    const onAbort = (): void => {
      // It may be its turn already.
      if (this.#waiting.delete(turn.resolve)) turn.reject(abortError(signal));
    };
    this.#waiting.add(turn.resolve);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      await turn.promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  #endTurn(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#writing = false;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}
