import { closeSync, constants, openSync } from "node:fs";
import { BerthError, canceled } from "../../core/errors.ts";
import type { OutputSink, SpawnedProcess } from "../../core/ports/engine.ts";
import type { Leftovers } from "../orphaned-pipes.ts";
import { type PipeEnds, PipeStreams } from "../pipe-streams.ts";
import type { ExecState } from "./exec-state.ts";

/** How soon somebody who opens an ended stdin once more meets its end. */
const FIRST_KNOCK_MS = 2;
const LONGEST_KNOCK_MS = 250;

/** A running `exec` whose standard streams are pipes of Berth's own. Paused until {@link resume} is called. */
export class PipedProcess implements SpawnedProcess {
  readonly #state: ExecState;
  readonly #streams: PipeStreams;
  /** Name of the pipe of its stdin. */
  readonly #stdin: string;
  #knockTimer: NodeJS.Timeout | undefined;
  #silent = false;
  #dropped = false;

  /** @param stdin name of the pipe of its stdin, while that is there. */
  constructor(state: ExecState, stdin: string, ends: PipeEnds, sink: OutputSink, leftovers: Leftovers) {
    this.#state = state;
    this.#stdin = stdin;
    this.#streams = new PipeStreams(ends, sink, leftovers, () => state.whyEnded());
    void this.ended.then(() => {
      this.#silent = true;
      clearTimeout(this.#knockTimer);
    });
  }

  /** Settles, never rejects, when its output has ended. */
  get ended(): Promise<void> {
    return this.#streams.silent;
  }

  /** Whether the pipes were let go of while others may hold them. */
  get dropped(): boolean {
    return this.#dropped;
  }

  pause(): void {
    this.#streams.pause();
  }

  resume(): void {
    this.#streams.resume();
  }

  trickle(): void {
    this.#streams.trickle();
  }

  writeStdin(data: Uint8Array): Promise<void> {
    return this.#streams.write(data);
  }

  closeStdin(): void {
    this.#streams.closeStdin();
    if (this.#knockTimer === undefined) this.#knock(FIRST_KNOCK_MS);
  }

  async resize(): Promise<void> {
    throw new BerthError("PROCESS_STATE", "The process has no terminal.");
  }

  async wait(signal?: AbortSignal): Promise<number> {
    const code = await this.#state.exitCode(this.ended, signal);
    this.#streams.abandonStdin();
    return code;
  }

  close(): void {
    this.closeStdin();
    this.#streams.close(canceled());
  }

  /** Drops the pipes too. Who still writes then waits until a later run of the service reads on. */
  destroy(): void {
    this.#dropped = true;
    this.close();
    this.#streams.destroy();
  }

  /**
   * Unlike other pipes, one with a name lets nobody open it for reading while
   * nobody has it open for writing. So whoever opens /dev/stdin after its end
   * would wait for ever, were it not opened for a moment now and then.
   */
  #knock(delayMs: number): void {
    if (this.#silent) return;
    this.#knockTimer = setTimeout(() => {
      try {
        closeSync(openSync(this.#stdin, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW));
      } catch (error) {
        // Nobody has it open for reading, or it has no name any more: nobody can open it again.
        const { code } = error as NodeJS.ErrnoException;
        if (code === "ENXIO" || code === "ENOENT") return;
      }
      this.#knock(Math.min(delayMs * 2, LONGEST_KNOCK_MS));
    }, delayMs).unref();
  }
}
