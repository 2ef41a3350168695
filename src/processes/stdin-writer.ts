import { untilAborted } from "../base/async.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { owned } from "../base/owned.ts";
import { Turns } from "../base/turns.ts";
import type { Job } from "./shell/job.ts";

/** How much is passed to the job at once. This much of an aborted write may still be on its way. */
const PIECE_BYTES = 256 * 1024;

/** Whether the job accepts more input. */
type Room =
  | { readonly state: "free" }
  /** `wake` of the waiting writer is called when there is room again, or when there never will be. */
  | { readonly state: "full"; wake: (() => void) | undefined }
  | { readonly state: "failed"; readonly error: unknown };

/** How far a process's stdin got. */
export interface StdinProgress {
  /** How many bytes were passed on, at least. */
  readonly passed: number;
  /** Whether more could follow. */
  readonly open: boolean;
}

/** Writes a job's stdin in order, each byte once. */
export class StdinWriter {
  readonly #job: Job;
  /** One write at a time, so that the next knows how far it got. */
  readonly #writes = new Turns(1);
  #room: Room = { state: "free" };
  /** Bytes passed to the job so far. */
  #taken = 0;
  /** Those of them that the job is known to have accepted. */
  #passed = 0;
  #closed = false;
  readonly #cut: StdinProgress | undefined;

  /** @param cut how far stdin had got when a restart of the service cut it off. */
  constructor(job: Job, cut?: StdinProgress) {
    this.#job = job;
    this.#cut = cut;
    if (cut === undefined) return;
    this.#taken = cut.passed;
    this.#passed = cut.passed;
    this.#closed = !cut.open;
    if (cut.open) this.#room = { state: "failed", error: stdinLost(cut) };
  }

  get progress(): StdinProgress {
    // A job that refuses more has as much of it as it wanted.
    return this.#cut ?? { passed: this.#passed, open: !this.#closed && this.#room.state !== "failed" };
  }

  /**
   * Writes `data`, which starts at `offset` in stdin. Bytes that were already written are skipped. Resolves with the
   * offset of the next write once the job has room for more. An aborted write may have passed on part of its data:
   * repeating the same write continues from there.
   * @throws `OFFSET_OUT_OF_RANGE` when bytes before `offset` are missing, `PROCESS_STATE` when stdin is closed,
   *   `STDIN_LOST` when it was cut off; the signal's reason.
   */
  async write(offset: number, data: Uint8Array, close: boolean, signal: AbortSignal): Promise<number> {
    throwIfAborted(signal);
    return this.#writes.run(() => this.#write(offset, data, close, signal), signal);
  }

  async #write(offset: number, data: Uint8Array, close: boolean, signal: AbortSignal): Promise<number> {
    if (offset > this.#taken) {
      // The missing bytes may be those that the job no longer took.
      if (this.#room.state === "failed") throw this.#room.error;
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
      await this.#untilRoom(signal);
      this.#send(owned(fresh.subarray(at, at + PIECE_BYTES)));
    }
    // Also for what an aborted write has passed on: if the job refuses that, a retry fails like any other write.
    if (data.length > 0 && offset + data.length > this.#passed) await this.#untilRoom(signal);
    if (close && !this.#closed) {
      this.#closed = true;
      this.#job.closeStdin();
    }
    return this.#taken;
  }

  #send(piece: Uint8Array): void {
    this.#taken += piece.length;
    const full: Room = { state: "full", wake: undefined };
    this.#room = full;
    const settle = (room: Room): void => {
      this.#room = room;
      full.wake?.();
    };
    this.#job.writeStdin(piece).then(
      () => {
        this.#passed += piece.length;
        settle({ state: "free" });
      },
      (error: unknown) => settle({ state: "failed", error }),
    );
  }

  /** Each wait has its own promise: a shared one would keep everything that abandoned waits reference. */
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
}

function stdinLost({ passed }: StdinProgress): BerthError {
  return new BerthError(
    "STDIN_LOST",
    `The service was restarted while the process ran: its stdin was cut off after ${passed} bytes or more.`,
    { metadata: { written: String(passed) } },
  );
}
