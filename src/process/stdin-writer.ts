import { Mutex } from "async-mutex";
import { BerthError } from "../core/errors.ts";
import type { Job } from "./job.ts";

/** Writes a job's stdin in order, each byte once. */
export class StdinWriter {
  readonly #job: Job;
  /** Held across one write, so that writes keep their order and know how far the one before got. */
  readonly #order = new Mutex();
  #taken = 0;
  #closed = false;

  constructor(job: Job) {
    this.#job = job;
  }

  /**
   * Writes `data`, which begins at `offset` of all that is written; bytes taken
   * before are skipped. Resolves with the offset of the next write once the job
   * has room for more.
   * @throws `OFFSET_OUT_OF_RANGE` when bytes before `offset` are missing, `PROCESS_STATE` when stdin is closed.
   */
  async write(offset: number, data: Uint8Array, close: boolean): Promise<number> {
    return this.#order.runExclusive(async () => {
      if (offset > this.#taken) {
        throw new BerthError(
          "OFFSET_OUT_OF_RANGE",
          `offset: ${offset} leaves a hole: ${this.#taken} bytes were written so far. Write from there.`,
          { metadata: { field: "offset", written: String(this.#taken) } },
        );
      }
      const fresh = data.subarray(this.#taken - offset);
      if (fresh.length > 0) {
        if (this.#closed) throw new BerthError("PROCESS_STATE", "The stdin of the process is closed.");
        await this.#job.writeStdin(fresh);
        this.#taken += fresh.length;
      }
      if (close && !this.#closed) {
        this.#closed = true;
        this.#job.closeStdin();
      }
      return this.#taken;
    });
  }
}
